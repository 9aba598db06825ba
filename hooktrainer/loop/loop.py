"""The training loop: collect a batch, optimize on it; everything else is a hook."""

from __future__ import annotations

import functools
import itertools
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from time import monotonic, perf_counter
from typing import Any

from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from ..base.cores import compute_threads, threads_for
from ..base.frames_bar import frames_bar, show_frames
from ..base.tensordicts import count_valid, not_a_tensordict
from ..base.words import listed
from ..errors import ConfigError, HookError, NonFiniteError, SkipOptimStep, add_note, as_failure
from ..store.rng import set_rng_state
from .assembly import Assembly
from .finite import blame_environment
from .metrics import Latest
from .signals import GracefulSignals, SignalExit
from .state import Resume, load_part, load_trainer_state, open_window_state, trainer_state

_MAX_UNCHANGED = 10_000  # steps on one and the same batch, after which no hook will end the epoch
_END = object()


class Loop(Assembly):
    """The bare loop: collects batches and calls the hooks at the ten points.

    The loop is drawn in `hooktrainer.loop.hook_points`. It has no hooks, optimizer or file format
    of its own; `hooktrainer.Trainer` adds them.
    """

    _bar: Any = None
    _resume = Resume()
    _closed = False

    def train(self) -> None:
        """Run until ``total_frames``, a stop request, or the end of the collector.

        Does nothing if the loaded run has ended; see `has_ended`.

        Raises:
            ConfigError: If nothing would be trained, or the trainer is closed.
            SystemExit: With code 128 + n after signal n (SIGINT, SIGTERM or SIGHUP); the run
                finished its batch and was saved, unless that took too long. With a message and code
                1 if code in the run called ``sys.exit(0)``.
            Exception: From a hook, the collector or the loss, with a note that names the hook and
                point.
        """
        if self._closed:
            raise ConfigError(
                "this trainer is closed: to go on, load its state into a new Trainer."
            )
        if self.has_ended:
            self.control.end()
            self.shutdown()
            return
        threads = self.threads or threads_for(self.loss_module)
        signals = GracefulSignals(self.control, self.grace, self.bridge.only_cleans_up)
        with signals, compute_threads(threads):
            self.run()
        if self.control.signal is not None:
            raise SignalExit(self.control.signal, deadline=self.control.deadline)

    def run(self) -> None:
        """Run the loop as `train` does, without signal handlers and thread settings."""
        point = self.registry.points
        # A collector counts transitions, of frame_skip frames each.
        warm_up = self.source.init_random_frames * self.frame_skip
        batch: TensorDictBase | None = None
        try:
            self._start()
            for batch in self._batches():
                batch = point["batch_process"](batch)
                point["pre_steps_log"](batch)
                if self.collected_frames >= warm_up:
                    with self.timing.phase("optimize"):
                        self.optim_steps(batch)
                point["post_steps"]()
                point["post_steps_log"](batch)
                if not self._end_batch():
                    break
            self._finish()
        except BaseException as error:
            raised = as_failure(error, self.collected_frames)
            if isinstance(error, NonFiniteError) and batch is not None:
                raised = blame_environment(error, batch)
            self._fail(raised)
            if raised is error:
                raise
            raise raised from error
        self.shutdown()

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

    def compute_loss(self, sub_batch: TensorDictBase, method: str | None = None) -> Any:
        """Compute the losses of a sub-batch; for a hook that sets ``computes_loss``.

        It calls the loss module, then the hooks at ``post_loss`` and those at ``optimizer`` that
        precede the calling hook, such as `NanGuard`.

        Args:
            sub_batch: The sub-batch, or a part of it.
            method: A method of the loss module to call instead, without hooks; returns its result.

        Returns:
            The losses, a TensorDict.

        Raises:
            HookError: If the loss module returns something else.
        """
        if method is not None:
            return self.precision.around(getattr(self.loss_module, method))(sub_batch)
        loss_module = self.precision.around(self.loss_module)
        losses = self.timing.traced("optimize/loss", loss_module)(sub_batch)
        if not is_tensor_collection(losses):
            raise HookError(not_a_tensordict("loss_module returned", losses))
        if not self.registry.computes_loss:
            return losses
        self.registry.points["post_loss"](sub_batch)
        return self.registry.before_own_loss(losses, self.clip_grad_norm, self.clip_norm, 0)

    # -- state -----------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether the loaded run has ended, so that `train` does nothing.

        Either it had ended when saved and has ``total_frames`` frames, or loading it requested a
        stop.
        """
        complete = self.collected_frames >= self.total_frames and self._resume.ended
        return complete or self.stop_reason is not None

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
        return trainer_state(self)

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
        self._resume = load_trainer_state(self, state, strict=strict)

    def save_trainer(self, force_save: bool = False) -> None:
        """Save the state if a save is due or forced."""
        if self._saver.due(self.progress) or force_save:
            self._save()

    def _save(self, *, wait: bool = False, before: Mapping[str, Any] | None = None) -> None:
        if self._saver.active:
            with self.timing.phase("checkpoint"):
                self.finite.settle()
                state = trainer_state(self, before)
                self._saver.save(state, self.progress, self.metrics.all_latest())
                if wait and self._saver.checkpoints is not None:
                    self._saver.checkpoints.wait()

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
        things = {
            id(thing): thing for thing in (*hooks, self.source, self._saver.checkpoints)
        }.values()
        methods = (getattr(t, "shutdown", None) or getattr(t, "close", None) for t in things)
        closers = [method for method in methods if callable(method)]
        if self._bar is not None:
            closers.insert(0, self._close_bar)
        status, why = self.control.status, self.control.stop_reason
        closers += [
            functools.partial(logger.close, status, step=self.collected_frames, reason=why)
            for logger in self.loggers
        ]
        _call_all("closing", closers, active=active)

    def _start(self) -> None:
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

        self.timing.lap_start = perf_counter()
        self.source.timing = self.timing  # it tells what collecting consists of
        if self.progress_bar:
            self._bar = frames_bar(total=self.total_frames, initial=self.progress.frames)
        if self._saver.active and (unsaved := self.source.unsaved):
            warnings.warn(unsaved, stacklevel=3)
        if self._saver.checkpoints is not None:
            self._saver.checkpoints.go_on()  # the loaded one is the run's latest
        for name, logger, saved in self._resume.loggers:
            load_part(name, logger, saved)
        self.registry.call_all("on_train_start", self)
        self.source.start()  # with the weights as the hooks leave them
        if self._resume.rng is not None:  # last, since building and starting may draw numbers
            set_rng_state(self._resume.rng)
        self.timing.lap("start")
        self.timing.start_window(self.progress.frames, self.progress.batches)

    def _batches(self) -> Iterator[TensorDictBase]:
        iterator = iter(self.source)
        while self.collected_frames < self.total_frames:
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
                # Whoever lets it end on purpose gives that number as total_frames.
                self.control.request_stop(
                    f"the collector ended at {self.collected_frames:,} of "
                    f"{self.total_frames:,} frames"
                )
                return
            if not is_tensor_collection(batch):
                raise ConfigError(not_a_tensordict("the collector's batch is", batch))
            self.progress.frames += count_valid(batch) * self.frame_skip
            self.progress.batches += 1
            yield batch

    def _end_batch(self) -> bool:
        """Log, show and save what is due; return whether another batch follows."""
        # By the clock as it stood when the batch began, which several processes agree on.
        log_due, save_due = self.cadences["log"].due(self.progress), self._saver.due(self.progress)
        self.progress.seconds += self.timing.lap()
        if self.control.take("log") or log_due:
            self._write_window()
        if self._bar is not None:
            with self.timing.phase("log"):
                if show_frames(self._bar, self.progress.frames):
                    self._show_metrics()
        requested = self.control.take("save")
        going_on = self.control.stop_reason is None and self.collected_frames < self.total_frames
        if going_on and (requested or save_due):
            self.save_trainer(force_save=True)
        if self._saver.checkpoints is not None:
            self._saver.checkpoints.check()  # whether a save in the background failed
        return going_on

    def _write_window(self, *, flush: bool = False) -> None:
        with self.timing.phase("log"):
            self.finite.settle()
            times = self.timing.close_window(self.progress.frames, self.progress.batches)
            if times:
                self.metrics.log({"train/optim_steps": Latest(self.optim_count)} | times)
            window = self.metrics.close_window()
            for logger in self.loggers:
                logger.log_scalars(window, self.collected_frames)
                if flush:
                    logger.flush()

    def _finish(self) -> None:
        """End the hooks, write the last window and save."""
        self.control.is_leaving = True
        complete = self.control.signal is None
        before = open_window_state(self) if complete else {}
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
        """Limit the wait for loggers to a share of the time left."""
        if self.control.deadline is not None:
            now = monotonic()
            for logger in self.loggers:
                logger.set_deadline(now + share * max(0.0, self.control.deadline - now))

    def _fail(self, error: BaseException) -> None:
        """Save aside, call ``on_exception``, close everything; further failures become notes."""
        self.control.is_leaving = True
        self.control.end(error)
        self._limit_wait(0.75)
        if isinstance(error, Exception):
            calls = [lambda: self._saver.save_aside(trainer_state(self))]
            _call_all("saving exception.pt", calls if self._saver.active else [], active=error)
        calls = [
            functools.partial(hook.on_exception, self, error)
            for hook in self.registry.hooks()
            if callable(getattr(hook, "on_exception", None))
        ]
        _call_all("on_exception", calls, active=error)
        self._close(active=error)

    def _show_metrics(self) -> None:
        latest = ((name, self.metrics.shown(name)) for name in self.metrics.pbar_names)
        shown = {name: f"{value:.4g}" for name, value in latest if value is not None}
        self._bar.set_postfix(shown, refresh=False)

    def _close_bar(self) -> None:
        show_frames(self._bar, self.progress.frames)
        self._show_metrics()
        self._bar.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bar": None}


def _call_all(
    what: str, calls: Iterable[Callable[[], Any]], *, active: BaseException | None = None
) -> None:
    """Make every call, even if others fail.

    Raises:
        Exception: The first failure, with the others as notes, unless ``active`` is given.
    """
    first: BaseException | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            main = active or first
            if main is None:
                first = error
            else:
                inner = getattr(call, "func", call)
                name = getattr(inner, "__qualname__", inner)
                add_note(main, f"{what} failed as well, in {name}: {error!r}")
    if first is not None:
        raise first
