"""Policy over one discrete action."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import NestedKey
from torch import nn

from .distributions import Categorical
from .policy import Policy


class CategoricalPolicy(Policy):
    """Chooses one of n actions with probabilities ``softmax(logits)``.

    Writes ``"action"`` (an index, ``[*batch]``, int64), ``"action_log_prob"`` ``[*batch]`` and, if
    asked, ``"logits"`` ``[*batch, n]``.

    Args:
        network: Maps an observation to ``[*batch, n]`` logits.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        action_mask_key: Entry of booleans, ``[*batch, n]``; actions where it is false are never
            chosen. `act` takes the mask after the other inputs.
        trunk: As for `Policy`.

    Examples:
        >>> policy = CategoricalPolicy(mlp(4, 2))
        >>> policy.act(torch.zeros(3, 4))["action"].shape
        torch.Size([3])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        action_mask_key: NestedKey | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__(network, Categorical(), in_keys, out_keys, action_mask_key, trunk)
