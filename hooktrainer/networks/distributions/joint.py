"""`Joint`: the distribution over a Dict or Tuple of actions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn

from .action_distribution import ActionDistribution


class Joint(ActionDistribution):
    """Independent distributions over the parts of an action, which stand side by side in a vector.

    The vector is int64 if all parts are, else float32; parameters and masks of the parts stand side
    by side as well. `hooktrainer.collect` makes dicts and tuples of it for the environments.

    Args:
        parts: The distributions, in the order of the space.
    """

    def __init__(self, parts: Sequence[ActionDistribution]) -> None:
        super().__init__(
            (sum(math.prod(part.shape) for part in parts),),
            sum(part.parameter_features for part in parts),
        )
        self.parts = nn.ModuleList(parts)
        self.mask_size = sum(part.mask_size for part in parts)
        self.estimates_entropy = any(part.estimates_entropy for part in parts)
        self._widths = [math.prod(part.shape) for part in parts]
        self._parameters_of = [part.parameter_features for part in parts]
        self._masks = [part.mask_size for part in parts]

    def sample(
        self, parameters: torch.Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, torch.Tensor]:
        """See `ActionDistribution.sample`."""
        wanted = [key for key in keys if key in ("action", "action_log_prob")]
        drawn = [
            part.complete(part.sample(own, wanted, deterministic), wanted)
            for part, own in self._each(parameters)
        ]
        out = {"action": self._joined([one["action"] for one in drawn], parameters)}
        if "action_log_prob" in keys:
            out["action_log_prob"] = _sum([one["action_log_prob"] for one in drawn])
        return out

    def rsample(self, parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `ActionDistribution.rsample`."""
        drawn = [part.rsample(own) for part, own in self._each(parameters)]
        return self._joined([action for action, _ in drawn], parameters), _sum(
            [log_prob for _, log_prob in drawn]
        )

    def log_prob_and_entropy(
        self, parameters: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `ActionDistribution.log_prob_and_entropy`."""
        results = []
        actions = action.split_with_sizes(self._widths, -1)
        for (part, own), taken in zip(self._each(parameters), actions, strict=True):
            shaped = taken.reshape(*taken.shape[:-1], *part.shape)
            if part.mask_size and shaped.is_floating_point():
                shaped = shaped.long()
            results.append(part.log_prob_and_entropy(own, shaped))
        return _sum([log_prob for log_prob, _ in results]), _sum([e for _, e in results])

    def as_torch(self, parameters: torch.Tensor) -> torch.distributions.Distribution:
        """See `ActionDistribution.as_torch`.

        Raises:
            NotImplementedError: Always; torch has none. TorchRL's losses want a composite of keys.
        """
        raise NotImplementedError(
            "A joint distribution has no object of torch; use hooktrainer.objectives, which ask "
            "for log_prob_and_entropy."
        )

    def masked(self, parameters: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `ActionDistribution.masked`."""
        masks = mask.split_with_sizes(self._masks, -1)
        return torch.cat(
            [
                part.masked(own, allowed) if part.mask_size else own
                for (part, own), allowed in zip(self._each(parameters), masks, strict=True)
            ],
            -1,
        )

    def _each(self, parameters: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        own = parameters.split_with_sizes(self._parameters_of, -1)
        return list(zip(self.parts, own, strict=True))

    def _joined(self, actions: list[torch.Tensor], parameters: torch.Tensor) -> torch.Tensor:
        batch = parameters.shape[:-1]
        discrete = not any(action.is_floating_point() for action in actions)
        dtype = torch.int64 if discrete else parameters.dtype
        return torch.cat([action.reshape(*batch, -1).to(dtype) for action in actions], -1)


def _sum(terms: list[torch.Tensor]) -> torch.Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
