"""The start and end of a training loop, the work after each batch, and the trainer's state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from copy import deepcopy
from time import monotonic
from typing import Any

from tensordict import TensorDictBase, is_tensor_collection

from ..base.frames_bar import frames_bar, show_frames
from ..base.tensordicts import count_valid
from ..errors import ConfigError
from . import check_trainer
from .assembly import Assembly
from .cadence import Progress
from .closing import call_all, close_methods
from .metrics import Latest, Metrics
from .state import Resume, load_trainer_state, open_window_state, trainer_state, with_open_window

_END = object()


class Lifecycle(Assembly):
    """Start, end and state of a loop; base class of `hooktrainer.loop.loop.Loop`."""

    _bar: ProgressBar | None = None
    _resume = Resume()
    _closed = False

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
        """
        state = deepcopy(state_dict) if copy else state_dict
        self._resume = load_trainer_state(self, state, strict=strict)

    def save_trainer(self, force_save: bool = False) -> None:
        """Save the state if a save is due or forced."""
        if self._saver.due(self.progress) or force_save:
            self._save(self.state_dict)

    def _save(self, state: Callable[[], dict[str, Any]], *, wait: bool = False) -> None:
        if self._saver.active:
            with self.timing.phase("checkpoint"):
                self._saver.save(state(), self.progress, self.metrics.all_latest())
                if wait:
                    self._saver.wait()

    def _save_aside(self) -> None:
        self._saver.save_aside(trainer_state(self))

    # -- beginning and end -----------------------------------------------------------------------

    def shutdown(self) -> None:
        """Close the progress bar, hooks, collector and loggers, once.

        All are closed even if one fails; then the first failure is raised.
        """
        self._close()

    def _close(self, active: BaseException | None = None) -> None:
        if not self._closed:
            self._closed = True
            collectors = (self.collector, self.source)
            hooks = [
                hook
                for hook in self.registry.hooks()
                if not self._is_logger(hook) and not any(hook is one for one in collectors)
            ]
            if self.control.status == "running":
                self.control.status = "interrupted"  # before train() came to its end
            # The bar first, so that hooks can print below it.
            closers = close_methods(self._bar, *hooks, self.source, self._saver)
            status, frames = self.control.status, self.collected_frames
            why = self.control.stop_reason
            closers += [
                functools.partial(logger.close, status, step=frames, reason=why)
                for logger in self.loggers
            ]
            call_all("closing", closers, active=active)

    def _is_logger(self, hook: Any) -> bool:
        """Whether a hook is also a logger, and closed as one."""
        return any(hook is logger for logger in self.loggers)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(
                "this trainer was closed: its run ended, or shutdown() was called. To go on, "
                "build a new Trainer and load this one's state with load_state_dict."
            )

    def _check_ready(self) -> None:
        self._check_open()
        points = self.registry.points
        if not any(getattr(e.owner, "trains", True) for e in points["optimizer"].entries):
            raise ConfigError(
                "nothing is registered at the optimizer point, so nothing would be trained: pass "
                "optimizer=, or register an OptimizerHook."
            )
        if self.optim_steps_per_batch is None and not points["process_optim_batch"].calls:
            raise ConfigError(
                "optim_steps_per_batch=None optimizes until a process_optim_batch hook raises "
                "StopIteration, but none is registered there: no epoch would end. Register one, "
                "such as ReplayBufferTrainer(..., iterate=True), or pass a number."
            )

    def _start(self) -> None:
        self._check_ready()
        self.timing.start_lap()
        self.source.timing = self.timing  # it tells what collecting consists of
        if self.progress_bar:
            self._bar = ProgressBar(self.total_frames, self.progress, self.metrics)
        self._saver.start(self.source.unsaved)
        self._resume.rewind_loggers()
        self.registry.call_all("on_train_start", self)
        self.source.start()  # with the weights as the hooks leave them
        self._resume.set_rng_state()  # last, since building and starting may draw numbers
        self.timing.lap("start")
        self.timing.start_window(self.progress.frames, self.progress.batches)

    def _batches(self) -> Iterator[TensorDictBase]:
        iterator = iter(self.source)
        while self.collected_frames < self.total_frames:
            batch: Any = _END
            with self.timing.phase("collect"), self.control.without_collector():
                batch = next(iterator, _END)
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
                raise ConfigError(check_trainer.not_a_tensordict("the collector's batch is", batch))
            self.progress.frames += count_valid(batch) * self.frame_skip
            self.progress.batches += 1
            yield batch

    def _end_batch(self) -> bool:
        """Log, show and save what is due; return whether another batch follows."""
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
            self._save(self.state_dict, wait=True)
            self._limit_wait(0.75)
        self.control.end()
        self.registry.call_all("on_train_end", self)
        self.timing.lap("end")
        self._write_window(flush=True)
        if complete:
            self._save(lambda: with_open_window(self.state_dict(), before), wait=True)
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
            calls = [self._save_aside] if self._saver.active else []
            call_all("saving exception.pt", calls, active=error)
        calls = [
            functools.partial(hook.on_exception, self, error)
            for hook in self.registry.hooks()
            if callable(getattr(hook, "on_exception", None))
        ]
        call_all("on_exception", calls, active=error)
        self._close(active=error)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bar": None}


# -- The progress bar: frames, frames per second, time left, and the metrics marked for it.


class ProgressBar:
    """A bar over the frames of a run; a resumed run continues it."""

    def __init__(self, total_frames: int, progress: Progress, metrics: Metrics) -> None:
        self._progress = progress
        self._metrics = metrics
        self._bar = frames_bar(total=total_frames, initial=progress.frames)

    def update(self) -> None:
        """Redraw the bar if it is time to."""
        if show_frames(self._bar, self._progress.frames):
            self._show_metrics()

    def close(self) -> None:
        """Show the final values and close the bar."""
        show_frames(self._bar, self._progress.frames)
        self._show_metrics()
        self._bar.close()

    def _show_metrics(self) -> None:
        latest = ((name, self._metrics.shown(name)) for name in self._metrics.pbar_names)
        shown = {name: f"{value:.4g}" for name, value in latest if value is not None}
        self._bar.set_postfix(shown, refresh=False)
