"""Distributions over discrete actions: one choice, several, or bits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

# -- `ActionDistribution`: the base class of distributions over actions.


class ActionDistribution(nn.Module, ABC):
    """A family of distributions over actions; a network returns the parameters.

    It is a module because it may have parameters, such as a deviation that does not depend on the
    observation. `distribution_for` chooses one for an action space; derive from this for another.

    Attributes:
        shape: Shape of one action.
        parameter_features: Size of the last dimension of the network's output.
        entries: Further entries of `sample` and `complete`, besides ``"action"`` and
            ``"action_log_prob"``.
        mask_size: Size of an action mask; 0 if masks are not supported.
        kl_keys: The entries of the old distribution for `kl_from`; empty if it has no closed form.
    """

    entries: tuple[str, ...] = ()
    mask_size: int = 0
    kl_keys: tuple[str, ...] = ()

    def __init__(self, shape: tuple[int, ...], parameter_features: int) -> None:
        super().__init__()
        self.shape = shape
        self.parameter_features = parameter_features

    @abstractmethod
    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        """An action ``[*batch, *shape]``, and further entries that `complete` needs.

        Args:
            parameters: ``[*batch, parameter_features]``.
            keys: The entries that are needed in the end.
            deterministic: Whether to take the mode instead.
        """

    def complete(self, sample: dict[str, Tensor], keys: Collection[str]) -> dict[str, Tensor]:
        """The entries ``keys`` of one result of `sample`, or of many stacked."""
        return sample

    @abstractmethod
    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient."""

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        """The distribution as an object of torch, ``[*batch]``, for TorchRL's losses.

        Discrete and bounded actions of more than one dimension are flat there.
        """
        raise NotImplementedError(f"{type(self).__name__} has no object of torch.")

    @property
    def has_mode(self) -> bool:
        """Whether `mode` is implemented."""
        return type(self).mode is not ActionDistribution.mode

    def mode(self, parameters: Tensor) -> Tensor:
        """The most likely action ``[*batch, *shape]``, with gradient; not of discrete ones."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable mode.")

    def kl_from(self, old: Mapping[str, Tensor], parameters: Tensor) -> Tensor:
        """The Kullback-Leibler divergence from an old distribution to the current, ``[*batch]``.

        Args:
            old: The entries ``kl_keys`` of the old one, ``[*batch, *shape]`` each.
            parameters: ``[*batch, parameter_features]``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no divergence in closed form.")

    def rsample(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """A differentiable random action, in the form of `encoded`, and its log-probability.

        Of discrete actions the latter is its expectation, minus the entropy. The gradient of their
        one-hot vectors is that of the probabilities (straight through; Bengio et al., 2013,
        arXiv:1308.3432), which is exact for functions that are linear in them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no differentiable samples.")

    def encoded(self, action: Tensor) -> Tensor:
        """The action as the input of a Q-function.

        It is unchanged if continuous, else one-hot vectors or bits, ``[*batch, encoded_shape]``.
        """
        return action

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        """Shape of an encoded action."""
        return self.shape

    @property
    def target_entropy(self) -> float:
        """The usual target of SAC: minus the size of a continuous action.

        Of discrete actions it is half of the greatest entropy.
        """
        return -float(math.prod(self.shape))

    def target_entropy_within(self, mask: Tensor) -> Tensor | float:
        """`target_entropy` in states with an action mask, ``[*batch, mask_size]``."""
        return self.target_entropy

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """The parameters restricted to actions that ``mask`` ``[*batch, mask_size]`` allows."""
        raise NotImplementedError(f"{type(self).__name__} takes no action mask.")

    def _shaped(self, flat: Tensor) -> Tensor:
        """Reshape ``[*batch, features]`` to ``[*batch, *shape]``."""
        return flat if len(self.shape) == 1 else flat.reshape(*flat.shape[:-1], *self.shape)


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Set the logits that ``mask`` forbids to the least finite number.

    With minus infinity the entropy would be NaN.
    """
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min)


class Discrete(ActionDistribution):
    """Base class of distributions whose parameters are logits."""

    entries = ("logits",)

    def complete(self, sample: dict[str, Tensor], keys: Collection[str]) -> dict[str, Tensor]:
        out = {key: value for key, value in sample.items() if key in keys}
        if "action_log_prob" in keys:
            log_prob, _ = self.log_prob_and_entropy(sample["logits"], sample["action"])
            out["action_log_prob"] = log_prob
        return out

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        return forbid(parameters, mask)

    def target_entropy_within(self, mask: Tensor) -> Tensor | float:
        uniform = self.masked(torch.zeros_like(mask, dtype=torch.get_default_dtype()), mask)
        action = self.sample(uniform, (), True)["action"]
        return 0.5 * self.log_prob_and_entropy(uniform, action)[1]

    def rsample(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        action = self.sample(parameters, ("action",), False)["action"]
        _, entropy = self.log_prob_and_entropy(parameters, action)
        probs = self._probabilities(parameters)
        return self.encoded(action).to(probs.dtype) + (probs - probs.detach()), -entropy

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        return (self.mask_size,)

    @abstractmethod
    def _probabilities(self, parameters: Tensor) -> Tensor:
        """The mean of `encoded`, ``[*batch, mask_size]``."""


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
        return {"action": choose(parameters, deterministic), "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = parameters.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy

    def encoded(self, action: Tensor) -> Tensor:
        return one_hot(action.long(), self.mask_size).float()

    def _probabilities(self, parameters: Tensor) -> Tensor:
        return parameters.softmax(-1)

    @property
    def target_entropy(self) -> float:
        return 0.5 * math.log(self.mask_size)

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
        self._sizes = list(sizes)

    def _by_choice(self, logits: Tensor) -> Tensor:
        """The logits ``[*batch, choices, largest]``."""
        nothing = logits.new_full((*logits.shape[:-1], 1), torch.finfo(logits.dtype).min)
        return torch.cat([logits, nothing], -1)[..., self._place]

    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        action = choose(self._by_choice(parameters), deterministic)
        return {"action": self._shaped(action), "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._by_choice(parameters).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum((-2, -1))
        chosen = action.reshape(*parameters.shape[:-1], -1, 1)
        return log_probs.gather(-1, chosen).sum((-2, -1)), entropy

    def encoded(self, action: Tensor) -> Tensor:
        indices = action.long().flatten(-len(self.shape)).unbind(-1)
        pairs = zip(indices, self._sizes, strict=True)
        return torch.cat([one_hot(index, size) for index, size in pairs], -1).float()

    def _probabilities(self, parameters: Tensor) -> Tensor:
        parts = parameters.split_with_sizes(self._sizes, -1)
        return torch.cat([part.softmax(-1) for part in parts], -1)

    @property
    def target_entropy(self) -> float:
        return 0.5 * sum(map(math.log, self._sizes))

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
        threshold = 0.5 if deterministic else torch.empty_like(parameters).uniform_()
        bits = (parameters.sigmoid() > threshold).to(torch.int8)
        return {"action": self._shaped(bits), "logits": parameters}

    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        bits = action.reshape(parameters.shape).to(parameters.dtype)
        # log sigmoid(x) = -softplus(-x), which is exact where the sigmoid saturates.
        log_one, log_zero = -softplus(-parameters), -softplus(parameters)
        p = parameters.sigmoid()
        entropy = -(p * log_one + (1 - p) * log_zero).sum(-1)
        return (bits * log_one + (1 - bits) * log_zero).sum(-1), entropy

    def encoded(self, action: Tensor) -> Tensor:
        return action.flatten(-len(self.shape)).float()

    def _probabilities(self, parameters: Tensor) -> Tensor:
        return parameters.sigmoid()

    @property
    def target_entropy(self) -> float:
        return 0.5 * math.log(2) * self.mask_size

    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        bits = torch.distributions.Bernoulli(logits=parameters, validate_args=False)
        return torch.distributions.Independent(bits, 1, validate_args=False)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        # Not the least number there is: its product with 0 bits is to stay a number.
        return parameters.masked_fill(~mask, -1e9)


def choose(logits: Tensor, deterministic: bool) -> Tensor:
    """An index along the last dimension, drawn with probabilities ``softmax(logits)``."""
    if deterministic:
        return logits.argmax(-1)
    # A race of exponential clocks with rates exp(logits): each clock is the first to ring with
    # probability softmax(logits).
    clocks = torch.empty_like(logits).exponential_()
    return (logits - clocks.log_()).argmax(-1)
