"""Log what torchrl's own timers measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop


class LogTiming(TrainerHookBase):
    """Logs the times that `torchrl.timeit` collected, from collectors and from your own code.

    The trainer's own phases and hooks are timed and logged without it.

    Args:
        prefix: Group of the metrics: ``<prefix>/<timer>``.
        percall: Whether the mean per call is logged, or the total, in seconds.
        erase: Whether the timers start anew after they were logged.
    """

    def __init__(self, prefix: str = "time", percall: bool = True, erase: bool = False) -> None:
        self.prefix = prefix
        self.percall = percall
        self.erase = erase

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the times as metrics."""
        from torchrl import timeit

        times: dict[str, Any] = timeit.todict(percall=self.percall, prefix=self.prefix)
        if self.erase:
            timeit.erase()
        return times

    def register(self, trainer: Loop, name: str = "log_timing") -> None:
        """Register at ``post_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self)
