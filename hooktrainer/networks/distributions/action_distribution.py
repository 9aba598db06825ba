"""`ActionDistribution`: the base class of distributions over actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


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
        """A differentiable random action ``[*batch, *shape]`` and its log-probability."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable samples.")

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """The parameters restricted to actions that ``mask`` ``[*batch, mask_size]`` allows."""
        raise NotImplementedError(f"{type(self).__name__} takes no action mask.")


def forbid(logits: Tensor, mask: Tensor) -> Tensor:
    """Set the logits that ``mask`` forbids to the least finite number.

    With minus infinity the entropy would be NaN.
    """
    return logits.masked_fill(~mask, torch.finfo(logits.dtype).min)


# -- Drawing the actions of a rollout, one step after another, in memory that is there already.

Array = npt.NDArray[Any]


class Draws:
    """Draws one of n actions as `Categorical.sample` does, bit for bit, without allocating memory.

    ``outputs`` is where ``"action"`` ``[time, *batch]`` and ``"logits"`` ``[time, *batch, n]`` are
    written; the logits of a step are written into `parameters` before its action is drawn.
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
        """Begin a rollout: draw the random numbers of all steps, unless modes are taken."""
        if deterministic:
            self._noise.zero_()
            return
        for noise in self._noise_of:  # one call a step, as what is drawn depends on the size
            noise.exponential_().log_()

    def __call__(self, t: int) -> Array:
        """The actions of step ``t``, ``[*batch]``."""
        np.subtract(self.parameters[t], self._clocks[t], out=self._scores)
        return self._scores.argmax(-1, out=self._actions[t])
