"""`ObservationNormalizer`: updates a policy's observation statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import NestedKey, TensorDictBase

from ..base.tensordicts import valid
from ..loop.hook import EARLY, TrainerHookBase
from ..networks.normalization import RunningNorm

if TYPE_CHECKING:
    from ..loop.loop import Loop


class ObservationNormalizer(TrainerHookBase):
    """Updates a `RunningNorm` with every batch, after training on it.

    Collection and optimization of one iteration thus use the same statistics, and PPO's probability
    ratios start at 1. The statistics are part of the networks and saved with them.

    Args:
        norm: The layer of the policy and the critic.
        key: Key of the observations.
    """

    def __init__(self, norm: RunningNorm, key: NestedKey = "observation") -> None:
        self.norm = norm
        self.key = key

    def __call__(self, batch: TensorDictBase) -> None:
        """Add the observations of ``batch``, ``[*batch, features]``, without padding."""
        self.norm.update(valid(batch, self.key))

    def register(self, trainer: Loop, name: str = "observation_normalizer") -> None:
        """Register at ``post_steps_log``, before any evaluation."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self, priority=EARLY)
