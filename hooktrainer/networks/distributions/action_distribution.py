"""`ActionDistribution`: what a policy draws its actions from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class ActionDistribution(nn.Module, ABC):
    """A family of distributions over actions; a network gives the parameters of one of them.

    It is a module because it may have parameters of its own, such as a deviation that does not
    depend on the observation. There is one for each kind of action space, see `distribution_for`;
    derive from this for another.

    Attributes:
        shape: Shape of one action.
        parameter_features: Size of the last dimension of what the network has to give.
        entries: What `sample` and `complete` can give beside ``"action"`` and
            ``"action_log_prob"``.
        mask_size: Size of an action mask; 0 if there is nothing to choose from.
        estimates_entropy: Whether the entropy has no closed form and is estimated from one sample.
        kl_keys: The entries that say which distribution was drawn from, for `kl_from`; none where
            divergences have no closed form.
    """

    entries: tuple[str, ...] = ()
    mask_size: int = 0
    estimates_entropy: bool = False
    kl_keys: tuple[str, ...] = ()

    def __init__(self, shape: tuple[int, ...], parameter_features: int) -> None:
        super().__init__()
        self.shape = shape
        self.parameter_features = parameter_features

    @abstractmethod
    def sample(
        self, parameters: Tensor, keys: Collection[str], deterministic: bool
    ) -> dict[str, Tensor]:
        """An action, and what `complete` needs to tell the rest.

        Args:
            parameters: ``[*batch, parameter_features]``.
            keys: Which entries are wanted in the end.
            deterministic: Whether to take the mode instead.

        Returns:
            ``"action"`` ``[*batch, *shape]`` and others, ``[*batch, ...]`` each.
        """

    def complete(self, sample: dict[str, Tensor], keys: Collection[str]) -> dict[str, Tensor]:
        """The wanted entries of one sample, or of many stacked.

        Args:
            sample: What `sample` returned, or many such results stacked.
            keys: Which entries are wanted.
        """
        return sample

    def draws(self, outputs: Mapping[str, Tensor]) -> Draws | None:
        """What draws as `sample` does for all steps of a rollout, quicker; ``None`` for no such.

        Whoever overrides `sample` has to override it as well, or does without.

        Args:
            outputs: What `sample` returned at all steps, ``[time, *batch, ...]`` each, on the CPU;
                to be written.
        """
        return None

    @abstractmethod
    def log_prob_and_entropy(self, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient."""

    @abstractmethod
    def as_torch(self, parameters: Tensor) -> torch.distributions.Distribution:
        """The distribution as an object of torch, for TorchRL's losses; ``[*batch]``."""

    def mode(self, parameters: Tensor) -> Tensor:
        """The likeliest action, as `sample` takes it, ``[*batch, *shape]``, with gradient.

        Raises:
            NotImplementedError: If actions are discrete.
        """
        raise NotImplementedError(f"{type(self).__name__} has no differentiable mode.")

    def kl_from(self, old: Mapping[str, Tensor], parameters: Tensor) -> Tensor:
        """The Kullback-Leibler divergence from an old distribution to that of now, ``[*batch]``.

        Args:
            old: The entries ``kl_keys`` of the old one, ``[*batch, *shape]`` each.
            parameters: ``[*batch, parameter_features]``.

        Raises:
            NotImplementedError: If it has no closed form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no divergence in closed form.")

    def rsample(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """A random action and its log-probability, differentiable in the parameters.

        Returns:
            Shapes ``[*batch, *shape]`` and ``[*batch]``.

        Raises:
            NotImplementedError: If actions are discrete.
        """
        raise NotImplementedError(f"{type(self).__name__} has no differentiable samples.")

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """The parameters of the distribution over what ``mask`` allows.

        Args:
            parameters: ``[*batch, parameter_features]``.
            mask: Boolean, ``[*batch, mask_size]``.

        Raises:
            NotImplementedError: If there is nothing to choose from.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no action mask.")


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits of which those that ``mask`` forbids have no probability.

    They get the least finite number, not minus infinity, whose entropy would be NaN.
    """
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min)


# -- Drawing the actions of a rollout, one step after another, in memory that is there already.

Array = npt.NDArray[Any]


class Draws(Protocol):
    """Draws actions as a distribution's `sample` does, bit for bit, without making anything.

    Attributes:
        parameters: For each step where the distribution's parameters are written before its action
            is drawn, ``[*batch, parameter_features]``.
    """

    parameters: Sequence[Array]

    def begin(self, deterministic: bool) -> None:
        """Begin a rollout: draw from torch's generator what the samples of all steps would draw.

        Args:
            deterministic: Whether modes are taken.
        """

    def __call__(self, t: int) -> Array:
        """The actions of step ``t``, ``[*batch, *shape]``."""


class CategoricalDraws:
    """Draws one of n actions.

    Args:
        outputs: Where ``"action"`` and ``"logits"`` of all steps are written, ``[time, *batch]``
            and ``[time, *batch, n]``.
    """

    def __init__(self, outputs: Mapping[str, Tensor]) -> None:
        logits, actions = outputs["logits"], outputs["action"]
        self.parameters: Sequence[Array] = list(logits.numpy())
        self._actions = list(actions.numpy())
        clocks = torch.empty_like(logits)
        self._noise = clocks
        self._noise_of = clocks.unbind(0)
        self._clocks = list(clocks.numpy())
        self._scores = np.empty_like(self.parameters[0])

    def begin(self, deterministic: bool) -> None:
        """See `Draws.begin`."""
        if deterministic:
            self._noise.zero_()
            return
        for noise in self._noise_of:  # one call a step, as what is drawn depends on the size
            noise.exponential_().log_()

    def __call__(self, t: int) -> Array:
        """See `Draws.__call__`."""
        np.subtract(self.parameters[t], self._clocks[t], out=self._scores)
        return self._scores.argmax(-1, out=self._actions[t])
