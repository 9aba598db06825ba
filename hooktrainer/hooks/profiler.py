"""`Profiler` records operators with torch.profiler; `Tracer` records phases and hooks."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase

from ..base.checks import check_count
from ..base.fs import write_atomically
from ..loop.hook import LAST, TrainerHookBase
from ..loop.loop import Loop
from ..loop.timing import Trace


class Profiler(TrainerHookBase):
    """Records windows of a run with `torch.profiler`: every operator, by the phase that called it.

    A window skips ``wait`` batches, warms up for ``warmup`` batches and records ``active`` batches.
    It writes ``batches_<first>-<last>.pt.trace.json`` for Perfetto (https://ui.perfetto.dev) or
    chrome://tracing, and ``batches_<first>-<last>.txt``, the most expensive operators. The end of
    the run closes an open window. Profiled batches take longer.

    Args:
        directory: Directory of the files.
        wait: Batches skipped.
        warmup: Batches profiled but not recorded, at least 1.
        active: Batches recorded.
        repeat: Maximum number of windows, which follow each other; 0 for no bound.
        **options: Further arguments of `torch.profiler.profile`: ``activities``,
            ``record_shapes``, ``profile_memory``, ``with_stack``.
    """

    at = "post_steps_log"
    priority = LAST
    rank_zero_only = True
    is_saved = False
    phase = "profile"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        **options: Any,
    ) -> None:
        schedule = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
        for name, batches in schedule.items():
            check_count(name, batches, least=int(name in ("warmup", "active")))
        self.directory = Path(directory)
        self._skipped = wait + warmup
        self._length = wait + warmup + active
        self._batches = repeat * self._length  # of all windows; 0 for no bound
        self._options = {"schedule": schedule, **options}
        self._profile: torch.profiler.profile | None = None
        self._phases: list[Any] = []  # the open ones, as profiler records

    def on_train_start(self, trainer: Loop) -> None:
        """Begin to count batches."""
        schedule = torch.profiler.schedule(**self._options["schedule"])
        options = self._options | {"schedule": schedule, "on_trace_ready": self._write}
        self._profile = torch.profiler.profile(**options)
        self._profile.start()
        trainer.timing.listeners += (self,)

    def __call__(self, batch: TensorDictBase) -> None:
        """Count a batch, which may begin or end a window."""
        if self._profile is not None:
            self._leave_phases()  # a profiler step must not split a phase
            with warnings.catch_warnings():  # each window is written before the next
                warnings.filterwarnings("ignore", ".*clears events at the end of each cycle")
                self._profile.step()
            if self._profile.step_num == self._batches:
                self.close()

    def begin(self, phase: str) -> None:
        """Add a phase to the profile; see `hooktrainer.loop.timing.Timing`."""
        shown: Any = torch.profiler.record_function(phase)
        shown.__enter__()
        self._phases.append(shown)

    def end(self, phase: str) -> None:
        """End the phase."""
        if self._phases:  # it may have begun before the window did
            self._phases.pop().__exit__(None, None, None)

    def _leave_phases(self) -> None:
        while self._phases:
            self.end("")

    def _write(self, profile: torch.profiler.profile) -> None:
        last = self.trainer.progress.batches
        # The end of the run may cut a window short.
        recorded = (profile.step_num - 1) % self._length + 1 - self._skipped
        first = last - recorded + 1
        self.directory.mkdir(parents=True, exist_ok=True)
        name = f"batches_{first}-{max(first, last)}"
        trace = self.directory / f"{name}.pt.trace.json"
        trace.unlink(missing_ok=True)  # it may be a link
        profile.export_chrome_trace(str(trace))
        cuda = torch.profiler.ProfilerActivity.CUDA in profile.activities
        order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        table = profile.key_averages().table(sort_by=order, row_limit=40)
        write_atomically(self.directory / f"{name}.txt", table, durable=False)

    def close(self) -> None:
        """End the open window, which the end of the run may cut short, and write it."""
        profile, self._profile = self._profile, None
        if profile is not None:
            self._leave_phases()
            timing = self.trainer.timing
            timing.listeners = tuple(each for each in timing.listeners if each is not self)
            profile.stop()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_profile": None, "_phases": []}


# -- `Tracer`.


class Tracer(TrainerHookBase):
    """Writes the first batches as a Chrome trace.

    Perfetto (https://ui.perfetto.dev) and chrome://tracing open it. Every phase, hook call and loss
    call is a span. The file is written atomically after ``batches`` batches or at the end of the
    run, if that is earlier.

    Args:
        path: The file, such as ``trace.json``; overwritten if it exists.
        batches: Number of batches to record.
    """

    at = ()  # a listener of the trainer's timing
    rank_zero_only = True
    is_saved = False

    def __init__(self, path: str | os.PathLike[str], batches: int = 10) -> None:
        check_count("batches", batches)
        self.path = Path(path)
        self.batches = batches
        self._last = 0
        self._trace: Trace | None = None

    def on_train_start(self, trainer: Loop) -> None:
        """Start recording."""
        self._trace = trainer.timing.trace = Trace()
        self._last = trainer.progress.batches + self.batches
        trainer.timing.listeners += (self,)

    def begin(self, phase: str) -> None:
        """Stop when the batch after the last one is about to be collected."""
        if phase == "collect" and self.trainer.progress.batches == self._last:
            self.close()

    def end(self, phase: str) -> None:
        """Do nothing; see `hooktrainer.loop.timing.Timing`."""

    def close(self) -> None:
        """Write the file if the run ends early."""
        trace, self._trace = self._trace, None
        if trace is not None:
            timing = self.trainer.timing
            timing.listeners = tuple(each for each in timing.listeners if each is not self)
            timing.trace = None
            trace.write(self.path)
