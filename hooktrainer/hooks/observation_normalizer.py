"""`ObservationNormalizer`: updates a policy's observation statistics."""

from __future__ import annotations

from dataclasses import dataclass

from tensordict import NestedKey, TensorDictBase

from ..base.tensordicts import valid
from ..loop.hook import EARLY, TrainerHookBase
from ..networks.layers import RunningNorm


@dataclass(eq=False, repr=False)
class ObservationNormalizer(TrainerHookBase):
    """Updates a `RunningNorm` with every batch, after training on it.

    Collection and optimization of one iteration thus use the same statistics, and PPO's probability
    ratios start at 1. The statistics are part of the networks and saved with them.

    Args:
        norm: The layer of the policy and the critic.
        key: Key of the observations.
        mask: Key of the agents that act, where they may leave or take turns: the observations of
            others are padding.
    """

    at = "post_steps_log"
    priority = EARLY  # before any evaluation

    norm: RunningNorm
    key: NestedKey = "observation"
    mask: NestedKey | None = None

    def __call__(self, batch: TensorDictBase) -> None:
        """Add the observations of ``batch``, ``[*batch, features]``, without padding."""
        acts = None if self.mask is None else batch.get(self.mask, None)
        self.norm.update(valid(batch, self.key) if acts is None else batch[self.key][acts])
