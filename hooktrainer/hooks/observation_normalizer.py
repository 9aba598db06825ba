"""Keep the statistics that a policy normalizes its observations by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import NestedKey, TensorDictBase

from ..base.tensordicts import valid
from ..loop.hook import EARLY, TrainerHookBase
from ..networks.normalization import RunningNorm

if TYPE_CHECKING:
    from ..loop.loop import Loop


class ObservationNormalizer(TrainerHookBase):
    """Shows every batch to a `RunningNorm`, after it was trained on.

    So all of an iteration, collecting and optimizing, sees the same statistics, and the probability
    ratios of PPO begin at 1. The statistics themselves are the networks', and saved with them.

    Args:
        norm: The layer of the policy, and of the critic.
        key: Where the observations are.
    """

    def __init__(self, norm: RunningNorm, key: NestedKey = "observation") -> None:
        self.norm = norm
        self.key = key

    def __call__(self, batch: TensorDictBase) -> None:
        """Add the observations of ``batch``, ``[*batch, features]``, padding left out."""
        self.norm.update(valid(batch, self.key))

    def register(self, trainer: Loop, name: str = "observation_normalizer") -> None:
        """Register at ``post_steps_log``, before any evaluation."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self, priority=EARLY)
