"""Distributions over discrete actions: one choice, several, or bits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...base.tensordicts import uniform_like
from .action_distribution import ActionDistribution, forbid


class Discrete(ActionDistribution):
    """Base class of distributions whose parameters are logits."""

    entries = ("logits",)

    def complete(self, sample: dict[str, Tensor], keys: Collection[str]) -> dict[str, Tensor]:
        action, logits = sample["action"], sample["logits"]
        out = {"action": action}
        if "action_log_prob" in keys:
            out["action_log_prob"] = self.log_prob_and_entropy(logits, action)[0]
        if "logits" in keys:
            out["logits"] = logits
        return out

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        return forbid(parameters, mask)


class Categorical(Discrete):
    """One of n actions, with probabilities ``softmax(logits)``; an index, int64.

    Args:
        n: Number of actions; 0 if only the network determines it.
    """

    kl_keys = ("logits",)

    def __init__(self, n: int = 0) -> None:
        super().__init__((), n)
        self.mask_size = n

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        return {"action": _choose(parameters, deterministic), "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = parameters.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy

    def kl_from(self, old: Mapping[str, Tensor], parameters: Tensor) -> Tensor:
        before, now = old["logits"].log_softmax(-1), parameters.log_softmax(-1)
        return (before.exp() * (before - now)).sum(-1)

    def as_torch(self, parameters: Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=parameters, validate_args=False)


class MultiCategorical(Discrete):
    """Several independent choices; indices, int64, ``[*batch, *shape]``.

    Logits and masks of the choices are concatenated.

    Args:
        sizes: Number of actions of each choice.
        shape: Shape of one action; by default one dimension of all choices.
    """

    _place: Tensor

    def __init__(self, sizes: Sequence[int], shape: tuple[int, ...] | None = None) -> None:
        total = sum(sizes)
        super().__init__((len(sizes),) if shape is None else shape, total)
        self.mask_size = total
        # For each choice the places of its logits; those of shorter ones are filled up with a
        # place after all others, which has no probability.
        place = np.full((len(sizes), max(sizes)), total)
        starts = np.cumsum([0, *sizes])
        for row, start, size in zip(place, starts[:-1], sizes, strict=True):
            row[:size] = np.arange(start, start + size)
        self.register_buffer("_place", torch.from_numpy(place), persistent=False)

    def _by_choice(self, logits: Tensor) -> Tensor:
        """The logits ``[*batch, choices, largest]``."""
        nothing = logits.new_full((*logits.shape[:-1], 1), torch.finfo(logits.dtype).min)
        return torch.cat([logits, nothing], -1)[..., self._place]

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        action = _choose(self._by_choice(parameters), deterministic)
        action = action.reshape(*parameters.shape[:-1], *self.shape)
        return {"action": action, "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._by_choice(parameters).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum((-2, -1))
        chosen = action.reshape(*parameters.shape[:-1], -1, 1)
        return log_probs.gather(-1, chosen).sum((-2, -1)), entropy

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        logits = self._by_choice(parameters)
        each = torch.distributions.Categorical(logits=logits, validate_args=False)
        return torch.distributions.Independent(each, 1, validate_args=False)


class Bernoulli(Discrete):
    """Independent bits, each 1 with probability ``sigmoid(logit)``; int8, ``[*batch, *shape]``.

    A mask is false for bits that must be 0.

    Args:
        shape: Shape of one action.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        number = math.prod(shape)
        super().__init__(shape, number)
        self.mask_size = number

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        threshold = 0.5 if deterministic else uniform_like(parameters)
        bits = (parameters.sigmoid() > threshold).to(torch.int8)
        action = bits.reshape(*parameters.shape[:-1], *self.shape)
        return {"action": action, "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        bits = action.reshape(parameters.shape).to(parameters.dtype)
        # log sigmoid(x) = -softplus(-x), which is exact where the sigmoid saturates.
        log_one, log_zero = -softplus(-parameters), -softplus(parameters)
        p = parameters.sigmoid()
        entropy = -(p * log_one + (1 - p) * log_zero).sum(-1)
        return (bits * log_one + (1 - bits) * log_zero).sum(-1), entropy

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        bits = torch.distributions.Bernoulli(logits=parameters, validate_args=False)
        return torch.distributions.Independent(bits, 1, validate_args=False)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        # Not the least number there is: its product with 0 bits is to stay a number.
        return parameters.masked_fill(~mask, -1e9)


def _choose(logits: Tensor, deterministic: bool) -> Tensor:
    """An index along the last dimension, drawn with probabilities ``softmax(logits)``."""
    if deterministic:
        return logits.argmax(-1)
    # A race of exponential clocks with rates exp(logits): each clock is the first to ring with
    # probability softmax(logits).
    clocks = torch.empty_like(logits).exponential_()
    return (logits - clocks.log_()).argmax(-1)
