"""The trainer: one nested loop, and everything else a hook."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from ..base.batches import count_valid
from ..base.checks import check_count, check_positive, check_seed
from ..errors import ConfigError, HookError, IteratorEndedError, SkipOptimStep, no_quiet_end
from ..hooks.nan_guard import NanGuard
from ..hooks.optimizer import OptimizerHook
from ..log import as_loggers
from ..networks.threads import compute_threads, threads_for
from ..store import CheckpointManager
from ..store.single_file import decode, read_plain
from ..torchrl import checkpoint as torchrl_checkpoint
from ..torchrl import formats as torchrl_formats
from ..torchrl.bridge import TorchRLBridge
from ..torchrl.names import TorchRLNames
from ..torchrl.written import batches_of
from . import checks
from .bridge import HookHandle
from .cadence import Every
from .closing import call_all, close_methods
from .control import Control
from .device_clock import time_device
from .hook_points import HookPoint, HookPointName
from .metrics import Latest, Metrics
from .progress import Progress
from .progress_bar import ProgressBar
from .registry import Registry
from .saving import Saver
from .signals import GRACE, GracefulSignals, SignalExit
from .state import Resume, load_trainer_state, open_window_state, trainer_state, with_open_window
from .timing import Timing

_END = object()


class Trainer(TorchRLNames):
    """Collects batches and optimizes on them; hooks do the rest.

    The loop, with its ten hook points, is drawn in `hooktrainer.loop.hook_points`. A trainer trains
    once: when `train` returns or raises, everything it uses is closed.

    Args:
        collector: An iterable of TensorDicts, usually ``[num_envs, time]``. If it has a method
            ``register``, as hooks have, that is called with the trainer.
        total_frames: Environment frames at which training ends, those before a resume included.
        frame_skip: Environment frames per step of the collected data; by default the collector's
            ``frame_skip``, if it has one, else 1.
        optim_steps_per_batch: Optimizer steps per epoch; ``None``: until a hook at
            ``process_optim_batch`` returns ``None``, or raises ``StopIteration`` after a step.
        loss_module: Maps a TensorDict to a TensorDict whose ``loss*`` entries are minimized.
        optimizer: Optimizer of all ``loss*`` entries together. Register `OptimizerHook` instead
            to use several.
        logger: One logger or several; see `hooktrainer.get_logger`.
        clip_grad_norm: Whether ``clip_norm`` bounds the total norm of the gradient; otherwise it
            bounds each of its elements.
        clip_norm: The bound; ``None`` for no clipping.
        progress_bar: Whether to show a progress bar.
        seed: Seed of Python's, NumPy's and torch's global generators and of the collector.
        save_trainer_interval: Frames between two saves; or one or several cadences, any of which
            makes a save due. The end of the run is saved in any case.
        log_interval: Frames in a log window. The first batch and the end of the run close a window
            as well.
        save_trainer_file: File that the trainer's state is saved to; each save replaces it.
        num_epochs: Passes over a batch.
        checkpoints: The run's checkpoints, which the state is saved to as well. Closed with the
            trainer.
        threads: Threads of the CPU that torch computes with while it trains; ``None``: one for
            small networks, as many as torch has for large ones.
        nan_guard: Whether a loss that is NaN or infinite stops training before it does harm.
        grace: Seconds from SIGINT, SIGTERM or SIGHUP to the end of the process: for the batch under
            way, a checkpoint, and then all else.

    Raises:
        ConfigError: If an argument cannot work.
    """

    def __init__(
        self,
        *,
        collector: Iterable[TensorDictBase],
        total_frames: int,
        frame_skip: int | None = None,
        optim_steps_per_batch: int | None,
        loss_module: Callable[[TensorDictBase], TensorDictBase],
        optimizer: torch.optim.Optimizer | None = None,
        logger: Any | Sequence[Any] | None = None,
        clip_grad_norm: bool = True,
        clip_norm: float | None = None,
        progress_bar: bool = True,
        seed: int | None = None,
        save_trainer_interval: int | Every | Sequence[Every] = 10_000,
        log_interval: int = 10_000,
        save_trainer_file: str | Path | None = None,
        num_epochs: int = 1,
        checkpoints: CheckpointManager | None = None,
        threads: int | None = None,
        nan_guard: bool = True,
        grace: float = GRACE,
    ) -> None:
        check_count("total_frames", total_frames)
        check_count(
            "optim_steps_per_batch", optim_steps_per_batch, none="until the sub-batches run out"
        )
        check_count("num_epochs", num_epochs)
        check_count("log_interval", log_interval)
        check_count("threads", threads, none="by the size of the networks")
        save_cadences = _save_cadences(save_trainer_interval)
        check_positive("clip_norm", clip_norm, none="no clipping")
        check_positive("grace", grace, "number of seconds")
        checks.check_collector(collector)
        frame_skip = checks.agreed_frame_skip(frame_skip, collector)
        checks.check_loss_module(loss_module)
        if optimizer is not None:
            checks.check_optimizer(optimizer, loss_module)

        self.collector: Any = collector
        self.total_frames = total_frames
        self.frame_skip = frame_skip
        self.optim_steps_per_batch = optim_steps_per_batch
        self.loss_module = loss_module
        self.optimizer = optimizer
        self.logger = logger
        self.clip_grad_norm = clip_grad_norm
        self.clip_norm = clip_norm
        self.progress_bar = progress_bar
        self.seed = seed
        self.save_trainer_interval = save_trainer_interval
        self.log_interval = log_interval
        self.threads = threads
        self.num_epochs = num_epochs
        self.grace = grace

        self.epoch = 0
        self.progress = Progress()
        self.control = Control()
        self.metrics = Metrics()
        self.timing = Timing()
        bridge = TorchRLBridge(self)
        self.registry = Registry(self, self.progress, self.metrics, self.timing, bridge)
        self.loggers = as_loggers(logger)
        self._saver = Saver(save_trainer_file, checkpoints, save_cadences)
        self.cadences = {"log": Every(frames=log_interval, at_start=True), **self._saver.cadences}
        self._bar: ProgressBar | None = None
        self._resume = Resume()
        self._closed = False

        if seed is not None:
            self.set_seed(seed)
        if nan_guard:
            NanGuard().register(self)
        if optimizer is not None:
            OptimizerHook(optimizer).register(self)
        register = getattr(collector, "register", None)
        if callable(register):
            checks.check_register(collector)
            register(self)

    # -- the loop --------------------------------------------------------------------------------

    def train(self) -> None:
        """Run the loop until ``total_frames``, a stop request, or the collector's end.

        Does nothing if the run that was loaded has ended; see `has_ended`.

        Raises:
            ConfigError: If nothing would be trained, or the trainer was closed before.
            SystemExit: With the code 128 + n, if signal n (SIGINT, SIGTERM or SIGHUP) ended the
                run. It finished its batch and was saved first, unless that took too long.
            SystemExit: With a message, exit code 1, if something in the run called ``sys.exit(0)``.
            Exception: Whatever a hook, the collector or the loss raises, with a note that says
                which hook, where and when. Everything is closed first.
        """
        if self.has_ended:
            self.control.end()
            self.shutdown()
            return
        point = self.registry.points
        # A collector counts transitions, of frame_skip frames each.
        warm_up = (getattr(self.collector, "init_random_frames", None) or 0) * self.frame_skip
        threads = self.threads or threads_for(self.loss_module)
        with GracefulSignals(self.control, self.grace), compute_threads(threads):
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
                raised = no_quiet_end(error, self.collected_frames)
                self._fail(raised)
                if raised is error:
                    raise
                raise raised from error
            self.shutdown()
        if self.control.signal is not None:
            raise SignalExit(self.control.signal, deadline=self.control.deadline)

    def optim_steps(self, batch: TensorDictBase) -> None:
        """Optimize on one batch: ``num_epochs`` times ``optim_steps_per_batch`` steps."""
        point, progress, metrics = self.registry.points, self.progress, self.metrics
        process_optim_batch = point["process_optim_batch"]
        optimizer, post_optim = point["optimizer"], point["post_optim"]
        post_optim_log = point["post_optim_log"]
        loss_module = self.timing.traced("optimize/loss", self.loss_module)
        loss_module, post_loss = self.registry.forward(loss_module)
        clip_grad_norm, clip_norm = self.clip_grad_norm, self.clip_norm
        steps = self.optim_steps_per_batch

        point["pre_optim_steps"]()
        for epoch in range(self.num_epochs):
            self.epoch = epoch
            for j in itertools.count() if steps is None else range(steps):
                made = progress.optim_steps
                try:
                    # A point without hooks is not even called.
                    sub_batch = process_optim_batch(batch) if process_optim_batch.calls else batch
                    if sub_batch is None:
                        break
                    progress.optim_steps = made + 1
                    losses = loss_module(sub_batch)
                    if losses.__class__ is not TensorDict and not is_tensor_collection(losses):
                        raise HookError(checks.not_a_tensordict("loss_module returned", losses))
                    if post_loss.calls:
                        sub_batch = post_loss(sub_batch)
                    losses = optimizer(losses, clip_grad_norm, clip_norm, j)
                    made += 1
                    if post_optim.calls:
                        post_optim()
                    if post_optim_log.calls:
                        post_optim_log(sub_batch)
                    metrics.log_losses(losses)
                except SkipOptimStep:
                    progress.optim_steps = made
                except IteratorEndedError:
                    # An end where any number will do, and there was a first one; else a mistake.
                    if steps is not None or not j:
                        raise
                    break

    def compute_loss(self, sub_batch: TensorDictBase, method: str | None = None) -> Any:
        """Compute the losses of a sub-batch, in a hook that says `computes_loss`.

        What the loop does where no hook says so: it calls the loss module, the hooks at
        ``post_loss``, and those at ``optimizer`` before that hook, such as `NanGuard`.

        Args:
            sub_batch: The sub-batch, or a part of it.
            method: A method of the loss module to call instead; what it returns is returned as it
                is, and no hook is called.

        Returns:
            The losses, a TensorDict.

        Raises:
            HookError: If the loss module returns something else.
        """
        if method is not None:
            return getattr(self.loss_module, method)(sub_batch)
        losses = self.timing.traced("optimize/loss", self.loss_module)(sub_batch)
        if not is_tensor_collection(losses):
            raise HookError(checks.not_a_tensordict("loss_module returned", losses))
        if not self.registry.computes_loss:
            return losses
        return self.registry.with_losses(sub_batch, losses, self.clip_grad_norm, self.clip_norm)

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
            op: A callable that takes what the point passes, checked here.
            priority: Ops of higher priority run first; among equals, the one registered first.
            every: The op is called only when this cadence is due.
            **kwargs: Passed to ``op`` at every call.

        Returns:
            A handle; its ``remove()`` takes the op out again.

        Raises:
            UnknownHookPointError: If there is no such point.
            HookSignatureError: If ``op`` cannot take what the point passes.
        """
        return self.registry.add(dest, op, priority=priority, every=every, kwargs=kwargs)

    def register_module(self, module_name: str, module: Any) -> None:
        """Name a stateful object, so that checkpoints hold its state under that name.

        Args:
            module_name: Unique in this trainer.
            module: An object with ``state_dict`` and ``load_state_dict``.

        Raises:
            DuplicateNameError: If the name is taken.
        """
        self.registry.add_module(module_name, module)

    def remove_hook(self, name: str) -> Any:
        """Take out the hook that is registered as ``name``, at all its points, and return it.

        Raises:
            ConfigError: If there is none.
        """
        return self.registry.remove_module(name)

    def describe(self) -> str:
        """List every hook by point in run order, with its cadence and the state it saves."""
        head = (
            f"Trainer: {self.collected_frames:,} of {self.total_frames:,} frames, "
            f"{self.optim_count:,} optimizer steps"
        )
        return f"{head}\n{self.registry.describe()}"

    __str__ = describe

    # -- what hooks ask for ----------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add values to metrics from anywhere in the run, as a log hook's result would be."""
        self.metrics.log(metrics)

    def request_stop(self, reason: str | None = None) -> None:
        """End the run after the current batch."""
        self.control.request_stop(reason)

    def request_save(self) -> None:
        """Save at the end of the current batch, if the trainer has somewhere to save to."""
        self.control.request_save()

    def request_log(self) -> None:
        """Close the log window at the end of the current batch."""
        self.control.request_log()

    def skip_optim_step(self) -> None:
        """Abandon the optimizer step under way; call it from a hook inside the inner loop.

        The rest of the step is not run: no later hook, no optimizer, no target update, no metric.
        If the optimizer has not run yet, the step is not counted. The call does not return.
        """
        raise SkipOptimStep("skip_optim_step() was called outside an optimizer step")

    # -- state -----------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether the run that was loaded has ended, so that `train` would do nothing.

        It had ended when it was saved and has ``total_frames``, or a hook asked for a stop when its
        state was loaded.
        """
        complete = self.collected_frames >= self.total_frames and self._resume.ended
        return complete or self.stop_reason is not None

    @property
    def resumed_total_frames(self) -> int | None:
        """``total_frames`` of the run that was loaded when it was saved; ``None`` if none was."""
        return self._resume.total_frames

    @property
    def collected_frames(self) -> int:
        """Environment frames collected so far."""
        return self.progress.frames

    @property
    def stop_reason(self) -> str | None:
        """Why the run was asked to stop; ``None`` if it was not."""
        return self.control.stop_reason

    @property
    def optim_count(self) -> int:
        """Optimizer steps made so far."""
        return self.progress.optim_steps

    def set_seed(self, seed: int) -> None:
        """Seed the global generators and the collector, whose environments are reset.

        Raises:
            ConfigError: ``seed`` is not an integer from 0 to 2**63 - 1.
        """
        check_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        if callable(getattr(self.collector, "set_seed", None)):
            self.collector.set_seed(seed)
            # torchrl's collectors were reset before they could be seeded.
            if callable(getattr(self.collector, "reset", None)):
                self.collector.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state of the run, as of the last finished batch."""
        return trainer_state(self)

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, *, copy: bool = True
    ) -> None:
        """Restore a run.

        Args:
            state_dict: What `state_dict` of a trainer with the same hooks returned.
            strict: Whether hooks that are missing on either side, parameters of another shape and
                other versions of the libraries are an error. Otherwise they are warned of, and what
                fits is restored; where parameters differ, optimizers begin anew.
            copy: Whether the state is copied first. Many objects, torch's optimizers among them,
                keep the tensors they load; of a state that nobody else uses, as when it was read
                from a file, they may.

        Raises:
            StateMismatchError: If the state does not fit, all differences listed; nothing is
                changed then.
        """
        state = deepcopy(state_dict) if copy else state_dict
        self._resume = load_trainer_state(self, state, strict=strict)

    @property
    def save_trainer_file(self) -> Path | None:
        """File that the state is saved to."""
        return self._saver.file

    @save_trainer_file.setter
    def save_trainer_file(self, file: str | Path | None) -> None:
        self._saver.file = None if file is None else Path(file)

    def save_trainer(self, force_save: bool = False) -> None:
        """Save the state, if that is due or forced and there is somewhere to save to.

        Args:
            force_save: Whether to save even if no save is due.

        Raises:
            CheckpointError: If the state holds what cannot be saved, or an earlier save failed in
                the background.
        """
        if self._saver.due(self.progress) or force_save:
            self._save(self.state_dict)

    def _save(self, state: Callable[[], dict[str, Any]], *, wait: bool = False) -> None:
        if self._saver.active:
            with self.timing.phase("checkpoint"):
                self._saver.save(state(), self.progress, self.metrics.all_latest())
                if wait:
                    self._saver.wait()

    def _save_aside(self) -> None:
        self._saver.save_aside(self.state_dict())

    def load_from_file(self, file: str | Path, strict: bool = True) -> Trainer:
        """Restore what `save_trainer` wrote, here or in TorchRL; see `load_state_dict`.

        Args:
            file: The file; of TorchRL's trainer also a directory or an archive.
            strict: As for `load_state_dict`; not for what TorchRL wrote.

        Raises:
            CheckpointError: If it is damaged, or something else.
            StateMismatchError: If it does not fit the trainer.
        """
        content = torchrl_formats.read(Path(file)) or read_plain(file)
        if torchrl_formats.recognizes(content):
            torchrl_checkpoint.load(self, content)
        else:
            self.load_state_dict(decode(content, file), strict=strict, copy=False)
        return self

    # -- beginning and end -----------------------------------------------------------------------

    def shutdown(self) -> None:
        """Close the progress bar, the hooks, the collector and the loggers, once.

        All are closed even if one of them fails; the first failure is raised at the end.
        """
        self._close()

    def _close(self, beside: BaseException | None = None) -> None:
        if not self._closed:
            self._closed = True
            given = self.logger if isinstance(self.logger, (list, tuple)) else [self.logger]
            hooks = [h for h in self.registry.hooks() if not any(h is logger for logger in given)]
            if self.control.status == "running":
                self.control.status = "interrupted"  # before train() came to its end
            # The bar first, so that hooks can print below it.
            closers = close_methods(self._bar, *hooks, self.collector, self._saver)
            closers += [functools.partial(lg.close, self.control.status) for lg in self.loggers]
            call_all("closing", closers, beside=beside)

    def _check_ready(self) -> None:
        if self._closed:
            raise ConfigError(
                "this trainer was closed: its run ended, or shutdown() was called. To go on, "
                "build a new Trainer and load this one's state with load_state_dict."
            )
        points = self.registry.points
        if not any(not isinstance(e.owner, NanGuard) for e in points["optimizer"].entries):
            raise ConfigError(
                "nothing is registered at the optimizer point, so nothing would be trained: pass "
                "optimizer=, or register an OptimizerHook."
            )
        entries = points["optimizer"].entries
        if self.registry.computes_loss and any(isinstance(e.owner, OptimizerHook) for e in entries):
            name = next(entry.name for entry in entries if entry.computes_loss)
            raise ConfigError(
                f"{name!r} computes the losses and takes the optimizer steps, so an OptimizerHook "
                "has nothing to do: pass Trainer no optimizer=, and register none."
            )
        if self.optim_steps_per_batch is None and not points["process_optim_batch"].calls:
            raise ConfigError(
                "optim_steps_per_batch=None optimizes until a process_optim_batch hook returns "
                "None, but no hook is registered there: the loop would never end. Register one, "
                "such as ReplayBufferTrainer(..., iterate=True), or pass a number."
            )

    def _start(self) -> None:
        self._check_ready()
        self.timing.start_lap()
        time_device(self.timing, self.loss_module)
        if isinstance(getattr(self.collector, "timing", None), Timing):
            self.collector.timing = self.timing  # it tells what collecting consists of
        if self.progress_bar:
            self._bar = ProgressBar(self.total_frames, self.progress, self.metrics)
        self._saver.start(self.collector)
        self._resume.rewind_loggers()
        self.registry.call_all("on_train_start", self)
        self._resume.set_rng_state()  # last, since building and starting may draw numbers
        self.timing.lap("start")
        self.timing.start_window(self.progress.frames, self.progress.batches)

    def _batches(self) -> Iterator[TensorDictBase]:
        iterator = batches_of(self.collector)
        while self.collected_frames < self.total_frames:
            batch: Any = _END
            with self.timing.phase("collect"), self.control.without_collector():
                batch = next(iterator, _END)
            if batch is _END:
                if not self.progress.batches and self.control.signal is None:
                    raise ConfigError("the collector ended before it yielded a batch.")
                return
            if not is_tensor_collection(batch):
                raise ConfigError(checks.not_a_tensordict("the collector's batch is", batch))
            self.progress.frames += count_valid(batch) * self.frame_skip
            self.progress.batches += 1
            yield batch

    def _end_batch(self) -> bool:
        """Log, show and save what is due; whether there is another batch to come."""
        # By the clock as it stood when the batch began, which several processes agree on.
        log_due, save_due = self.cadences["log"].due(self.progress), self._saver.due(self.progress)
        self.progress.seconds += self.timing.lap()
        if self.control.take_log_request() or log_due:
            self._write_window()
        if self._bar is not None:
            with self.timing.phase("log"):
                self._bar.update()
        requested = self.control.take_save_request()
        going_on = self.control.stop_reason is None and self.collected_frames < self.total_frames
        if going_on and (requested or save_due):
            self.save_trainer(force_save=True)
        self._saver.check()
        return going_on

    def _write_window(self, *, flush: bool = False) -> None:
        with self.timing.phase("log"):
            self.registry.add_up_times()
            times = self.timing.close_window(self.progress.frames, self.progress.batches)
            if times:
                self.metrics.log({"train/optim_steps": Latest(self.optim_count)} | times)
            window = self.metrics.close_window()
            for logger in self.loggers:
                logger.log_scalars(window, self.collected_frames)
                if flush:
                    logger.flush()

    def _finish(self) -> None:
        """End the hooks, write the last window and save.

        The state is saved with the log window still open, so that whoever resumes goes on as if
        the run had not ended. A run that a signal ended is saved first, since who sent it may not
        wait; any other, which may never write its last window again, when everything is written.
        """
        self.control.is_leaving = True
        complete = self.control.signal is None
        before = open_window_state(self) if complete else {}
        if not complete:
            self._hurry(0.25)
            self._save(self.state_dict, wait=True)
            self._hurry(0.75)
        self.control.end()
        self.registry.call_all("on_train_end", self)
        self.timing.lap("end")
        self._write_window(flush=True)
        if complete:
            self._save(lambda: with_open_window(self.state_dict(), before), wait=True)
        self.timing.lap("end")

    def _hurry(self, share: float) -> None:
        """Have the loggers be waited for during no more than a share of the time that is left."""
        if self.control.deadline is not None:
            now = monotonic()
            for logger in self.loggers:
                logger.hurry(now + share * max(0.0, self.control.deadline - now))

    def _fail(self, error: BaseException) -> None:
        """Save aside, tell the hooks, close everything; failures of that become notes."""
        self.control.is_leaving = True
        self.control.end(error)
        self._hurry(0.75)
        if isinstance(error, Exception):
            calls = [self._save_aside] if self._saver.active else []
            call_all("saving exception.pt", calls, beside=error)
        calls = [
            functools.partial(hook.on_exception, self, error)
            for hook in self.registry.hooks()
            if callable(getattr(hook, "on_exception", None))
        ]
        call_all("on_exception", calls, beside=error)
        self._close(beside=error)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bar": None}


def _save_cadences(interval: Any) -> Sequence[Every]:
    if isinstance(interval, Every):
        return [interval]
    if isinstance(interval, (list, tuple)):
        return interval
    check_count("save_trainer_interval", interval)
    return [Every(frames=interval)]
