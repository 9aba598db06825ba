"""`DTLoss`, of a decision transformer and parts of a data set's episodes."""

from __future__ import annotations

from typing import Any

from tensordict import NestedKey
from torch import Tensor, nn

from .common import Entries, Loss


class DTLoss(Loss):
    """The loss of a decision transformer (Chen et al., 2021, arXiv:2106.01345).

    Reads parts of episodes, ``[batch, time, ...]`` each: ``"return_to_go"``, ``"observation"``,
    ``"action"``, ``"step"`` and ``"mask"``, as `hooktrainer.data.Subsequences` makes them. Returns
    ``loss_dt``, the mean over all steps but padding of the cross-entropy of discrete actions, or of
    the mean squared difference of continuous ones, where their box is [-1, 1].

    Args:
        actor_network: A `hooktrainer.networks.DecisionTransformerPolicy`.
    """

    hint = "hooktrainer.data.Subsequences makes it from a data set."
    out_keys = ("loss_dt",)
    actor_network: Any

    def __init__(self, actor_network: nn.Module) -> None:
        super().__init__(
            action="action",
            observation="observation",
            return_to_go="return_to_go",
            step="step",
            mask="mask",
        )
        self.actor_network = actor_network

    @property
    def in_keys(self) -> list[NestedKey]:
        keys = self.tensor_keys
        return [keys.return_to_go, keys.observation, keys.action, keys.step, keys.mask]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        actor = self.actor_network
        return_to_go, observation, action, step, mask = (entries[key] for key in self.in_keys)
        output = actor.network(return_to_go, observation, actor.encoded(action), step, mask)
        error = actor.error(output, action)
        return {"loss_dt": (error * mask).sum() / mask.sum()}
