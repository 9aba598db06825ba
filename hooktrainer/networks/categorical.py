"""Policy over one discrete action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn

from .exploration import is_deterministic
from .inference import Inference
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

    Examples:
        >>> policy = CategoricalPolicy(mlp(4, 2))
        >>> policy.act(torch.zeros(3, 4))["action"].shape
        torch.Size([3])
    """

    entries = ("action", "action_log_prob", "logits")

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        action_mask_key: NestedKey | None = None,
    ) -> None:
        super().__init__(network, in_keys, out_keys)
        self.action_mask_key = action_mask_key
        if action_mask_key is not None:
            self.in_keys = [*in_keys, action_mask_key]

    def log_prob_and_entropy(
        self, inputs: Sequence[torch.Tensor], action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient."""
        log_probs = self.evaluate(*inputs).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Categorical:
        """The categorical distribution, ``[*batch]``, with gradient."""
        logits = self.evaluate(*self.inputs(tensordict))
        return torch.distributions.Categorical(logits=logits, validate_args=False)

    def complete(self, sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return ``out_keys`` for the actions and logits of one step, or of many."""
        action, logits = sample["action"], sample["logits"]
        out = {"action": action}
        if "action_log_prob" in self.out_keys:
            log_probs = logits.log_softmax(-1)
            out["action_log_prob"] = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        if "logits" in self.out_keys:
            out["logits"] = logits
        return out

    def _decide(self, logits: torch.Tensor) -> dict[str, torch.Tensor]:
        if is_deterministic():
            return {"action": logits.argmax(-1), "logits": logits}
        # A race of exponential clocks with rates exp(logits): each clock is the first to ring
        # with probability softmax(logits).
        clocks = torch.empty_like(logits).exponential_()
        return {"action": (logits - clocks.log_()).argmax(-1), "logits": logits}

    def _parameters_from(
        self, network: nn.Module | Inference, *inputs: torch.Tensor
    ) -> torch.Tensor:
        if self.action_mask_key is None:
            return super()._parameters_from(network, *inputs)
        logits = super()._parameters_from(network, *inputs[:-1])
        # The least finite number, not minus infinity, whose entropy would be NaN.
        return logits.masked_fill(~inputs[-1], torch.finfo(logits.dtype).min)
