"""Save when a metric is better than ever."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from tensordict import TensorDictBase

from ..errors import ConfigError
from ..loop.hook import TrainerHookBase
from ..loop.priorities import LATE

if TYPE_CHECKING:
    from ..loop.loop import Loop


class SaveOnBest(TrainerHookBase):
    """Asks for a checkpoint at the end of every batch in which a metric reached a new best.

    To keep those checkpoints, give the `CheckpointManager` a `Best` of the same metric.

    Args:
        metric: Name of the metric.
        mode: ``"max"`` if larger is better, ``"min"`` if smaller is.
    """

    def __init__(self, metric: str = "eval/return", mode: Literal["max", "min"] = "max") -> None:
        if mode not in ("min", "max"):
            raise ConfigError(f"SaveOnBest(mode={mode!r}): pass 'min' or 'max'.")
        self.metric = metric
        self.mode = mode
        self.best: float | None = None

    def __call__(self, batch: TensorDictBase) -> None:
        """Look at the metric, and ask for a save if it is better than ever."""
        value = self.trainer.metrics.latest(self.metric)
        if value is None or math.isnan(value):
            return
        better = max if self.mode == "max" else min
        if self.best is None or (value != self.best and better(value, self.best) == value):
            self.best = value
            self.trainer.request_save()

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value."""
        self.best = state_dict["best"]

    def register(self, trainer: Loop, name: str = "save_on_best") -> None:
        """Register at ``post_steps_log``, behind the hooks that log the metric."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self, priority=LATE)
