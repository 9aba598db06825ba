"""Record the first batches of a run, span by span, for a look at what happens when."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ..base.checks import check_count
from ..loop.hook import TrainerHookBase
from ..loop.priorities import FIRST
from ..loop.tracing import Trace

if TYPE_CHECKING:
    from ..loop.loop import Loop


class Tracer(TrainerHookBase):
    """Writes the first batches as a Chrome trace.

    Perfetto (https://ui.perfetto.dev) and chrome://tracing open it. Every phase, every call of a
    hook and every call of the loss is a span. The file is written, all of it or nothing, when so
    many batches are over, or when the run ends or fails before that. From then on nothing is
    recorded, and the hook is no longer called.

    Args:
        path: The file, such as ``trace.json``; replaced if it is there.
        batches: How many batches are recorded.
    """

    rank_zero_only = True
    is_saved = False
    phase = "trace"

    def __init__(self, path: str | os.PathLike[str], batches: int = 10) -> None:
        check_count("batches", batches)
        self.path = Path(path)
        self.batches = batches
        self._last = 0
        self._handle: Any = None
        self._trace: Trace | None = None

    def on_train_start(self, trainer: Loop) -> None:
        """Begin to record."""
        self._trace = trainer.timing.trace = Trace()
        self._last = trainer.progress.batches + self.batches
        trainer.registry.time_every_pass(True)

    def __call__(self, batch: TensorDictBase) -> None:
        """Stop if the batches are over; what was logged and saved after the last one is in."""
        if self._trace is not None:
            if self.trainer.progress.batches <= self._last:
                return
            # The batch that has just been collected is one too many.
            self._trace.cut(self._trace.named("collect")[-1].start)
            self._stop()
        self._handle.remove()

    def close(self) -> None:
        """Write what is there, if the run ends before the batches are over."""
        self._stop()

    def _stop(self) -> None:
        if (trace := self._trace) is None:
            return
        self._trace = self.trainer.timing.trace = None
        self.trainer.registry.time_every_pass(False)
        trace.write(self.path)

    def register(self, trainer: Loop, name: str = "tracer") -> None:
        """Register at the beginning of ``batch_process``."""
        trainer.register_module(name, self)
        self._handle = trainer.register_op("batch_process", self, priority=FIRST)
