"""The training loop: collect a batch, optimize on it; everything else is a hook."""

from __future__ import annotations

import functools
import itertools
import math
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from ..base.checks import check_seed
from ..base.cores import compute_threads, threads_for
from ..base.endings import ENDED
from ..base.frames_bar import frames_bar, show_frames
from ..base.imports import check_may_train
from ..base.notebook import in_kernel
from ..base.tensordicts import count_valid, not_a_tensordict
from ..base.words import listed
from ..errors import ConfigError, HookError, NonFiniteError, SkipOptimStep, add_note, as_failure
from ..store.backends import backend_name
from ..store.provenance import library_versions
from ..store.rng import rng_state, seed_generators, set_rng_state
from ..store.single_file import save_file
from .cadence import Every, Progress
from .control import Control, Stop
from .finite import FiniteChecks, blame_data
from .hook_points import HookPoint, HookPointName
from .metrics import Latest, Metrics
from .precision import Precision
from .registry import HookHandle, Registry, draw_hooks
from .signals import GracefulSignals, SignalExit
from .state import LOGGER, Resume, load_components, load_part
from .stateful import Stateful, has_state
from .timing import Timing

if TYPE_CHECKING:
    from ..log import Logger
    from ..store import CheckpointManager

_MAX_UNCHANGED = 10_000  # steps on one and the same batch, after which no hook will end the epoch
_END = object()


class Loop:
    """The bare loop: collects batches and calls the hooks at the ten points.

    The loop is drawn in `hooktrainer.loop.hook_points`. It has no hooks, optimizer or file format
    of its own; `hooktrainer.Trainer` adds them.

    Attributes:
        collector: The collector as given; the loop itself uses ``source``.
        source: The `hooktrainer.collect.Collector` for it.
        logger: The loggers as given; the loop itself uses ``loggers``.
        compiled_loss: Replaces ``loss_module`` in the loop unless it is ``None``.
        bridge: Adapts hooks written for TorchRL's trainer.
        cadences: When the log window ends and the state is saved, by name; ``log`` is the first.
        checkpoints: Where the state is saved to, in addition to ``save_trainer_file``.
    """

    collector: Any
    source: Any
    loss_module: Callable[[TensorDictBase], TensorDictBase]
    logger: Any
    loggers: list[Logger]
    total_frames: float
    frame_skip: int
    optim_steps_per_batch: int | None
    num_epochs: int
    clip_grad_norm: bool
    clip_norm: float | None
    progress_bar: bool
    threads: int | None
    grace: float
    precision: Precision
    bridge: Any
    registry: Registry
    cadences: dict[str, Every]
    save_trainer_file: Path | None
    checkpoints: CheckpointManager | None
    _bar: Any = None
    _resume = Resume()
    _closed = False

    def __init__(self) -> None:
        self.compiled_loss: Callable[[TensorDictBase], TensorDictBase] | None = None
        self.epoch = 0
        self.progress = Progress()
        self.control = Control()
        self.finite = FiniteChecks(self.progress)
        self.metrics = Metrics()
        self.timing = Timing()

    def train(self) -> None:
        """Run until ``total_frames``, a stop request, or the end of the collector and its data.

        Does nothing if the loaded run has ended; see `has_ended`.

        In a Jupyter notebook it shows a `hooktrainer.loop.live_view.LiveView`, and SIGINT, which
        interrupting the kernel sends, ends the run in the same way without an exception: the status
        is ``"interrupted"``.

        Raises:
            ConfigError: If nothing would be trained, or the trainer is closed.
            SystemExit: With code 128 + n after signal n (SIGINT, SIGTERM or SIGHUP); the run
                finished its batch and was saved, unless that took too long. With a message and code
                1 if code in the run called ``sys.exit(0)``.
            Exception: From a hook, the collector or the loss, with a note that names the hook and
                point.
        """
        check_may_train()
        if self._closed:
            raise ConfigError(
                "this trainer is closed: to continue, load its state into a new Trainer."
            )
        if self.has_ended:
            self._end_at_once()
            return
        threads = self.threads or threads_for(self.loss_module)
        with self._graceful(), compute_threads(threads):
            self.run()
        self._exit_after_signal()

    def _end_at_once(self) -> None:
        """End a loaded run that has ended, with the metrics that it ended with."""
        self.metrics.reported = dict(self._resume.reported)
        self.control.end()
        self._close()

    def _graceful(self) -> GracefulSignals:
        return GracefulSignals(self.control, self.grace, self.bridge.only_cleans_up)

    def _exit_after_signal(self) -> None:
        number = self.control.signal
        if number is not None and not (number == signal.SIGINT and in_kernel()):
            raise SignalExit(number, deadline=self.control.deadline)

    def run(self) -> None:
        """Run the loop as `train` does, without signal handlers and thread settings."""
        point = self.registry.points
        # A collector counts transitions, of frame_skip frames each.
        warm_up = self.source.init_random_frames * self.frame_skip
        collected: TensorDictBase | None = None
        batch: TensorDictBase | None = None
        try:
            self._start()
            for collected in self._batches():
                batch = point["batch_process"](collected)
                point["pre_steps_log"](batch)
                if self.progress.frames >= warm_up:
                    with self.timing.phase("optimize"):
                        self.optim_steps(batch)
                point["post_steps"]()
                point["post_steps_log"](batch)
                if not self._end_batch():
                    break
            self._finish()
        except BaseException as error:
            raised = self._fail(error, collected, batch)
            if raised is error:
                raise
            raise raised from error
        self._close()

    def optim_steps(self, batch: TensorDictBase) -> None:
        """Optimize on one batch: ``num_epochs`` times ``optim_steps_per_batch`` steps."""
        point, progress, metrics = self.registry.points, self.progress, self.metrics
        process_optim_batch = point["process_optim_batch"]
        optimizer, post_optim = point["optimizer"], point["post_optim"]
        post_optim_log = point["post_optim_log"]
        loss_module = self.precision.around(self.compiled_loss or self.loss_module)
        loss_module = self.timing.traced("optimize/loss", loss_module)
        # Such a hook, at `optimizer`, gets the sub-batch and calls `compute_loss`.
        computes_loss, post_loss = self.registry.computes_loss, point["post_loss"]
        clip_grad_norm, clip_norm = self.clip_grad_norm, self.clip_norm
        steps = self.optim_steps_per_batch

        point["pre_optim_steps"]()
        for epoch in range(self.num_epochs):
            self.epoch = epoch
            for j in itertools.count() if steps is None else range(steps):
                made = progress.optim_steps
                try:
                    try:
                        # A point without hooks is not even called.
                        sub_batch = (
                            process_optim_batch(batch) if process_optim_batch.calls else batch
                        )
                    except StopIteration as error:
                        if j or epoch:
                            break
                        raise HookError(
                            f"StopIteration {error.__notes__[-1]}, before the first optimizer "  # type: ignore[attr-defined]
                            "step of a batch: begin an iterator that ran out again; to train only "
                            "on some batches, call trainer.skip_optim_step()."
                        ) from error
                    if j == _MAX_UNCHANGED and sub_batch is batch and steps is None:
                        hooks = [entry.name for entry in process_optim_batch.entries]
                        raise HookError(
                            f"{j:,} optimizer steps on one batch: a hook at process_optim_batch "
                            f"({listed(hooks)}) ends the epoch by raising StopIteration."
                        )
                    progress.optim_steps = made + 1
                    losses = sub_batch if computes_loss else loss_module(sub_batch)
                    if losses.__class__ is not TensorDict and not is_tensor_collection(losses):
                        raise HookError(not_a_tensordict("loss_module returned", losses))
                    if post_loss.calls and not computes_loss:
                        sub_batch = post_loss(sub_batch)
                    losses = optimizer(losses, clip_grad_norm, clip_norm, j)
                    made += 1
                    if post_optim.calls:
                        post_optim()
                    if post_optim_log.calls:
                        post_optim_log(sub_batch)
                    metrics.log_losses(losses)
                except NonFiniteError as error:
                    error.batch = sub_batch
                    raise
                except SkipOptimStep:
                    progress.optim_steps = made

    def compute_loss(self, sub_batch: TensorDictBase) -> TensorDictBase:
        """Compute the losses of a sub-batch; for a hook that sets ``computes_loss``.

        It calls the loss module, then the hooks at ``post_loss`` and those at ``optimizer`` that
        precede the calling hook, such as `NanGuard`.

        Args:
            sub_batch: The sub-batch, or a part of it.

        Returns:
            The losses.

        Raises:
            HookError: If the loss module returns something else.
        """
        loss_module = self.precision.around(self.loss_module)
        losses = self.timing.traced("optimize/loss", loss_module)(sub_batch)
        if not is_tensor_collection(losses):
            raise HookError(not_a_tensordict("loss_module returned", losses))
        if not self.registry.computes_loss:
            return losses
        self.registry.points["post_loss"](sub_batch)
        return self.registry.before_own_loss(losses, self.clip_grad_norm, self.clip_norm, 0)

    @property
    def collected_frames(self) -> int:
        """Environment frames collected so far."""
        return self.progress.frames

    @property
    def stop_reason(self) -> str | None:
        """Why the run was requested to stop; ``None`` if it was not."""
        return self.control.stop_reason

    @property
    def optim_count(self) -> int:
        """Optimizer steps so far."""
        return self.progress.optim_steps

    def set_seed(self, seed: int) -> None:
        """Seed Python, NumPy, torch and the collector, which resets its environments."""
        check_seed("seed", seed)
        seed_generators(seed)
        self.source.set_seed(seed)

    # -- hooks -----------------------------------------------------------------------------------

    def register_op(
        self,
        dest: HookPointName | HookPoint,
        op: Callable[..., Any],
        *,
        priority: float = 0,
        every: Every | None = None,
        **kwargs: Any,
    ) -> HookHandle:
        """Register ``op`` at a hook point.

        Args:
            dest: One of `HOOK_POINTS`.
            op: A callable that accepts the arguments of the point.
            priority: Ops of higher priority run first; ties run in order of registration.
            every: Call the op only when this cadence is due.
            **kwargs: Passed to ``op`` at every call.

        Returns:
            A handle; its ``remove()`` removes the op.

        Raises:
            UnknownHookPointError: If there is no such point.
            HookSignatureError: If ``op`` cannot take the arguments of the point.
        """
        return self.registry.add(dest, op, priority=priority, every=every, kwargs=kwargs)

    def register_module(self, module_name: str, module: Any) -> None:
        """Register a stateful object under the name that checkpoints use.

        Raises:
            DuplicateNameError: If the name is taken.
        """
        self.registry.add_module(module_name, module)

    def remove_hook(self, name: str) -> Any:
        """Remove the hook registered as ``name`` from all its points, and return it."""
        return self.registry.remove_module(name)

    def describe(self) -> str:
        """List every hook by point in run order, with its cadence and the state it saves."""
        head = f"Trainer: {self.amount}, {self.progress.optim_steps:,} optimizer steps"
        return f"{head}\n{draw_hooks(self.registry.table())}"

    __str__ = describe

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.control.status}, {self.amount}>"

    @property
    def amount(self) -> str:
        """The frames so far, of how many, in the unit of the collector."""
        of = "" if math.isinf(self.total_frames) else f" of {self.total_frames:,}"
        return f"{self.progress.frames:,}{of} {self.source.unit}"

    def total_for(self, what: str) -> int:
        """Return ``total_frames`` for something that is a function of it.

        Raises:
            ConfigError: If it is not known.
        """
        if self.known_total is None:
            raise ConfigError(
                f"{what} needs the length of the run: pass Trainer(total_frames=...)."
            )
        return self.known_total

    @property
    def known_total(self) -> int | None:
        """``total_frames``; ``None`` if only the end of the collector ends the run."""
        return None if math.isinf(self.total_frames) else int(self.total_frames)

    # -- requests of hooks -----------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add values to the metrics of the open log window."""
        self.metrics.log(metrics)

    def request_stop(self, reason: str | None = None, *, status: Stop = "stopped") -> None:
        """End the run after the current batch.

        Args:
            reason: Why; by default where this was called. The first reason given is kept.
            status: Status of the run in ``run.json``.
        """
        if reason is None:
            by = traceback.extract_stack(limit=2)[0]
            reason = f"requested in {by.name}, {Path(by.filename).name}:{by.lineno}"
        self.control.request_stop(reason, status)

    def request_save(self) -> None:
        """Save at the end of the current batch, if the trainer has a file or checkpoints."""
        self.control.request("save")

    def request_log(self) -> None:
        """Close the log window at the end of the current batch."""
        self.control.request("log")

    def skip_optim_step(self) -> None:
        """Abandon the current optimizer step; call this from a hook in the inner loop.

        It raises an exception that the loop catches: no later hook, optimizer or metric of this
        step runs. The step is not counted unless the optimizer has run already.
        """
        raise SkipOptimStep("skip_optim_step() was called outside an optimizer step")

    # -- state -----------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether the loaded run has ended, so that `train` does nothing.

        Either it had ended when saved and has ``total_frames`` frames, or loading it requested a
        stop.
        """
        complete = self.progress.frames >= self.total_frames and self._resume.ended
        return complete or self.control.stop_reason is not None

    @property
    def resumed_total_frames(self) -> int | None:
        """``total_frames`` of the loaded run when it was saved; ``None`` if none was loaded."""
        return self._resume.total_frames

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state of the run after the last finished batch.

        Raises:
            NonFiniteError: If a pending check on an accelerator fails.
        """
        self.finite.settle()
        return self._state()

    def _state(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the state; ``before`` is an `_open_window` that replaces what the end changed."""
        state = {name: part.state_dict() for name, part in self.components().items()}
        before = before or {"components": {}, "rng": rng_state()}
        return {
            "format": 1,
            "components": state | before["components"],
            "rng": before["rng"],
            "versions": dict(library_versions()),
            "total_frames": self.known_total,
            "ended": self.control.status in ENDED,
            # Those of ``before`` lack the last window, which a resume to more frames repeats.
            "reported": dict(self.metrics.reported),
        }

    def _open_window(self) -> dict[str, Any]:
        """Copy the state that the end of a run changes: metrics, loggers, random generators."""
        state = {
            name: part.state_dict()
            for name, part in self.components().items()
            if name == "metrics" or name.startswith(LOGGER)
        }
        return deepcopy({"components": state, "rng": rng_state()})

    def components(self) -> dict[str, Stateful]:
        """Return every stateful object by name, each once.

        Names are ``hook/<name>``, ``cadence/<name>``, ``logger/<index>``, and those of the loop's
        parts.
        """
        registry = self.registry
        own = (self, self.loss_module, self.collector, self.source, *self.loggers)
        hooks = registry.named(own).items()
        found = {
            "progress": self.progress,
            "metrics": self.metrics,
            "loss_module": registry.part(self.loss_module),
            "collector": registry.part(self.source),
            **{f"hook/{name}": registry.part(hook) for name, hook in hooks},
            **{f"cadence/{n}": each for n, each in (self.cadences | registry.cadences()).items()},
            **{f"{LOGGER}{index}": logger for index, logger in enumerate(self.loggers)},
        }
        return {name: part for name, part in found.items() if has_state(part)}

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, *, copy: bool = True
    ) -> None:
        """Restore a run.

        Args:
            state_dict: Result of `state_dict` of a trainer with the same hooks.
            strict: Whether missing hooks, other shapes of parameters and other library versions are
                an error. Otherwise they cause a warning and what fits is restored; if parameters
                differ, optimizers are reset.
            copy: Whether to copy the state first, since objects such as torch's optimizers keep the
                tensors they load.

        Raises:
            StateMismatchError: If the state does not fit; lists all mismatches and changes nothing.
                If a component fails to load a state that seemed to fit, the trainer is loaded in
                part: build another.
        """
        state = deepcopy(state_dict) if copy else state_dict
        self._resume = load_components(self.components(), state, strict=strict)

    def save_trainer(self, force_save: bool = False) -> None:
        """Save the state if a save is due or forced."""
        if self._is_save_due() or force_save:
            self._save()

    def _is_save_due(self) -> bool:
        """Return whether a cadence is due; checks all, so that each keeps its phase."""
        saves = [each for name, each in self.cadences.items() if name.startswith("save")]
        due = [each.due(self.progress) for each in saves]
        return any(due)

    def _save(self, *, wait: bool = False, before: Mapping[str, Any] | None = None) -> None:
        file, checkpoints = self.save_trainer_file, self.checkpoints
        if file is None and checkpoints is None:
            return
        with self.timing.phase("checkpoint"):
            self.finite.settle()
            state = self._state(before)
            if file is not None:
                save_file(file, state, backend_name())
            if checkpoints is not None:
                frames, steps = self.progress.frames, self.progress.optim_steps
                latest = self.metrics.all_latest()  # by which checkpoints are ranked
                checkpoints.save(state, frames=frames, optim_steps=steps, metrics=latest)
                if wait:
                    checkpoints.wait()

    # -- start and end -----------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Close the progress bar, hooks, collector and loggers, once.

        All are closed even if one fails; then the first failure is raised.
        """
        self._close()

    def _close(self, active: BaseException | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        if self.control.status == "running":
            self.control.status = "interrupted"  # before train() came to its end
        given = self.logger if isinstance(self.logger, (list, tuple)) else [self.logger]
        apart = [*map(id, given), id(self.collector), id(self.source)]
        hooks = [hook for hook in self.registry.hooks() if id(hook) not in apart]
        # The bar first, so that hooks can print below it.
        things = {id(thing): thing for thing in (*hooks, self.source, self.checkpoints)}.values()
        methods = (getattr(t, "shutdown", None) or getattr(t, "close", None) for t in things)
        closers = [method for method in methods if callable(method)]
        if self._bar is not None:
            closers[:0] = [functools.partial(self._show_progress, final=True), self._bar.close]
        status, why = self.control.status, self.control.stop_reason
        closers += [
            functools.partial(logger.close, status, step=self.progress.frames, reason=why)
            for logger in self.loggers
        ]
        _call_all("closing", closers, active)

    def _check_points(self) -> None:
        """Refuse hooks with which the loop would train nothing, or not end."""
        points = self.registry.points
        if not any(getattr(e.owner, "trains", True) for e in points["optimizer"].entries):
            raise ConfigError(
                "nothing is registered at the optimizer point: nothing would be trained."
            )
        if self.optim_steps_per_batch is None and not points["process_optim_batch"].calls:
            raise ConfigError(
                "optim_steps_per_batch=None optimizes until a hook at process_optim_batch raises "
                "StopIteration, but none is there, so no epoch would end: pass a number."
            )

    def _start(self) -> None:
        self._check_points()
        cadences = self.cadences | self.registry.cadences()
        if self.source.epoch is None and any(one.unit == "epochs" for one in cadences.values()):
            raise ConfigError(
                f"Every(epochs=...) needs a collector that counts epochs, such as DataCollector; "
                f"{type(self.collector).__name__} does not: count batches or {self.source.unit}."
            )
        for one in cadences.values():
            if one.unit in ("samples", "tokens") and one.unit != self.source.unit:
                raise ConfigError(
                    f"{one!r}: {type(self.collector).__name__} counts {self.source.unit}: count "
                    "these, or frames, which are whatever it counts."
                )

        self.timing.lap_start = perf_counter()
        self.source.timing = self.timing  # to which it adds the parts of collecting
        if self.progress_bar:
            self._bar = self._new_bar()
        is_saved = self.save_trainer_file is not None or self.checkpoints is not None
        if is_saved and (unsaved := self.source.unsaved):
            warnings.warn(unsaved, stacklevel=3)
        if self.checkpoints is not None:
            self.checkpoints.resume()  # the loaded one is the run's latest
        for name, logger, saved in self._resume.loggers:
            load_part(name, logger, saved)
        self.registry.call_all("on_train_start", self)
        self.source.start()  # with the weights as the hooks leave them
        if self._resume.rng is not None:  # last, since building and starting may draw numbers
            set_rng_state(self._resume.rng)
        self.timing.lap("start")
        self.timing.close_window(self.progress.frames, self.progress.batches)

    def _batches(self) -> Iterator[TensorDictBase]:
        iterator = iter(self.source)
        while self.progress.frames < self.total_frames:
            batch: Any = _END
            try:
                with self.timing.phase("collect"):
                    batch = next(iterator, _END)
            except Exception as error:
                # A signal to the whole process group also ends processes of a collector that does
                # not shield them. The run then ends with the batches that it has.
                if self.control.signal is None:
                    raise
                warnings.warn(
                    f"{signal.Signals(self.control.signal).name} ended the collector's processes "
                    f"as well ({type(error).__name__}: {error}); the run ends with the last "
                    "finished batch.",
                    stacklevel=3,
                )
            if batch is _END:
                if not self.progress.batches and self.control.signal is None:
                    raise ConfigError("the collector ended before it yielded a batch.")
                if not self.source.ended:
                    # A collector that ends on purpose gives this number as its total_frames.
                    self.control.request_stop(f"the collector ended at {self.amount}")
                return
            if not is_tensor_collection(batch):
                raise ConfigError(not_a_tensordict("the collector's batch is", batch))
            self._count_batch(count_valid(batch) * self.frame_skip)
            yield batch

    def _count_batch(self, frames: int) -> None:
        self.progress.frames += frames
        self.progress.batches += 1
        self.progress.epochs = self.source.epoch or 0.0

    def _end_batch(self) -> bool:
        """Log, show and save what is due; return whether another batch follows."""
        # By the clock as it stood when the batch began, which several processes agree on.
        log_due, save_due = self.cadences["log"].due(self.progress), self._is_save_due()
        self.progress.seconds += self.timing.lap()
        if self.control.take("log") or log_due:
            self._write_window()
        if self._bar is not None:
            with self.timing.phase("log"):
                self._show_progress()
        requested = self.control.take("save")
        going_on = self.control.stop_reason is None and self.progress.frames < self.total_frames
        if going_on and (requested or save_due):
            self._save()
        if self.checkpoints is not None:
            self.checkpoints.check()  # whether a save in the background failed
        return going_on

    def _write_window(self, *, flush: bool = False) -> None:
        with self.timing.phase("log"):
            self.finite.settle()
            times = self.timing.close_window(self.progress.frames, self.progress.batches)
            if times:
                steps = Latest(self.progress.optim_steps)
                self.metrics.log({"train/optim_steps": steps} | times)
            window = self.metrics.close_window()
            for logger in self.loggers:
                logger.log_scalars(window, self.progress.frames)
                if flush:
                    logger.flush()
            if add_window := getattr(self._bar, "add_window", None):
                add_window(window)

    def _finish(self) -> None:
        """End the hooks, write the last window and save."""
        self.control.is_leaving = True
        complete = self.control.signal is None
        if complete and self.source.ended:
            self.control.request_stop(self.source.ended, "finished")
        before = self._open_window() if complete else None
        if not complete:
            self._limit_wait(0.25)
            self._save(wait=True)
            self._limit_wait(0.75)
        self.control.end()
        self.registry.call_all("on_train_end", self)
        self.timing.lap("end")
        self._write_window(flush=True)
        if complete:
            self._save(wait=True, before=before)
        self.timing.lap("end")

    def _limit_wait(self, share: float) -> None:
        """Limit the wait for loggers to a share of the time left, for the mirror to half of it."""
        if self.control.deadline is not None:
            now = monotonic()
            limit = share * max(0.0, self.control.deadline - now)
            for logger in self.loggers:
                logger.set_deadline(now + limit)
            if self.checkpoints is not None:
                self.checkpoints.set_deadline(now + limit / 2)

    def _fail(
        self,
        error: BaseException,
        collected: TensorDictBase | None = None,
        batch: TensorDictBase | None = None,
    ) -> BaseException:
        """Save aside, call ``on_exception``, close everything; further failures become notes.

        Returns:
            The exception to raise: ``error``, or one that explains it.
        """
        if isinstance(error, NonFiniteError) and collected is not None:
            error = blame_data(error, collected, batch)
        error = as_failure(error, self.progress.frames)
        self.control.is_leaving = True
        self.control.end(error)
        self._limit_wait(0.75)
        place = self.save_trainer_file if self.checkpoints is None else self.checkpoints.directory
        if isinstance(error, Exception) and place is not None:
            # Of the middle of a batch: for debugging only.
            aside = Path(place).with_name("exception.pt")
            calls = [lambda: save_file(aside, self._state())]
            _call_all("saving exception.pt", calls, error)
        calls = [
            functools.partial(hook.on_exception, self, error)
            for hook in self.registry.hooks()
            if callable(getattr(hook, "on_exception", None))
        ]
        _call_all("on_exception", calls, error)
        self._close(active=error)
        return error

    def _new_bar(self) -> Any:
        if in_kernel():
            from .live_view import LiveView

            return LiveView(self)
        frames, total = self.progress.frames, self.known_total
        return frames_bar(self.source.unit, total=total, initial=frames)

    def _show_progress(self, *, final: bool = False) -> None:
        """Move the bar; if that draws it, or at the end, set the metrics that it shows next."""
        if show_frames(self._bar, self.progress.frames) or final:
            latest = {
                name: self.metrics.latest(name, wait=False) for name in self.metrics.pbar_names
            }
            shown = {name: f"{value:.4g}" for name, value in latest.items() if value is not None}
            self._bar.set_postfix(shown, refresh=False)

    def __getstate__(self) -> dict[str, Any]:
        # The lock on the directory of checkpoints stays with this process.
        return self.__dict__ | {"_bar": None, "checkpoints": None}


def _call_all(what: str, calls: Iterable[Callable[[], Any]], active: BaseException | None) -> None:
    """Make every call, even if others fail.

    Raises:
        Exception: The first failure, with the others as notes, unless ``active`` is given.
    """
    main = active
    for call in calls:
        try:
            call()
        except Exception as error:
            if main is None:
                main = error
            else:
                inner = getattr(call, "func", call)
                name = getattr(inner, "__qualname__", inner)
                add_note(main, f"{what} failed as well, in {name}: {error!r}")
    if active is None and main is not None:
        raise main
