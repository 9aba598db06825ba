"""Q-networks of distributions of the return: `CategoricalQNetwork` and `QuantileQNetwork`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..base.checks import check_count
from ..errors import ConfigError
from .q_heads import FractionEmbedding
from .q_network import QNetwork


class DistributionalQNetwork(QNetwork):
    """Base class: a `QNetwork` whose action values are means of distributions.

    Args:
        network: Maps the inputs to ``[*batch, actions * n]``, or to the features of a ``head``.
        n: Numbers that describe a distribution.
        options: Further arguments of `QNetwork`.
    """

    def __init__(
        self,
        network: nn.Module,
        n: int,
        in_keys: Sequence[NestedKey] = ("observation",),
        **options: Any,
    ) -> None:
        super().__init__(network, in_keys, **options)
        check_count("n", n)
        self.n = n

    def distribution(
        self, *inputs: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The distributions for the entries ``in_keys``, with gradient.

        Args:
            *inputs: As for `evaluate`.
            features: As for `evaluate`.

        Returns:
            What describes them, ``[*batch, actions, n]``, and what these numbers belong to.
        """
        out, _, _ = self._called(self.network, inputs, features)
        return self._distribution(out)

    @abstractmethod
    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Return `distribution` for the network's output."""

    def _by_action(self, out: Tensor) -> Tensor:
        out = out if self.head is None else self.head(out)
        return out.unflatten(-1, (-1, self.n))


class CategoricalQNetwork(DistributionalQNetwork):
    """Learns probabilities of fixed returns (C51: Bellemare et al., 2017, arXiv:1707.06887).

    `distribution` returns log-probabilities, ``[*batch, actions, n]``, and the atoms ``[n]``.

    Args:
        network, in_keys, options: As for `DistributionalQNetwork`.
        n: Number of atoms, at equal distances from ``v_min`` to ``v_max``.
        v_min: The least return.
        v_max: The greatest return.

    Raises:
        ConfigError: If there are less than two atoms, or ``v_min`` is not below ``v_max``.
    """

    atoms: Tensor

    def __init__(
        self,
        network: nn.Module,
        n: int = 51,
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        v_min: float = -10.0,
        v_max: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(network, n, in_keys, **options)
        if n < 2 or not v_min < v_max:
            raise ConfigError(
                f"CategoricalQNetwork: {v_min=} must be below {v_max=}, and n={n} at least 2."
            )
        self.register_buffer("atoms", torch.linspace(v_min, v_max, n))

    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        return self._by_action(out).log_softmax(-1), self.atoms

    def _values(self, out: Tensor) -> Tensor:
        return (self._by_action(out).softmax(-1) * self.atoms).sum(-1)


class QuantileQNetwork(DistributionalQNetwork):
    """Learns quantiles of the return.

    Without an ``embedding`` they are those of fixed fractions (QR-DQN: Dabney et al., 2018,
    arXiv:1710.10044), with one of any fraction (IQN: Dabney et al., 2018, arXiv:1806.06923).
    `distribution` returns quantiles, ``[*batch, actions, n]``, and their fractions: ``[n]``, or
    uniformly drawn ones ``[*batch, n]``. Action values are means over the fractions
    ``(k + 0.5) / n``.

    Args:
        network, in_keys, options: As for `DistributionalQNetwork`.
        n: Number of quantiles.
        embedding: Joins the network's features and fractions, for a ``head`` of one number an
            action.

    Raises:
        ConfigError: If there is an ``embedding`` without a ``head``.
    """

    fractions: Tensor

    def __init__(
        self,
        network: nn.Module,
        n: int = 51,
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        embedding: FractionEmbedding | None = None,
        **options: Any,
    ) -> None:
        super().__init__(network, n, in_keys, **options)
        if embedding is not None and self.head is None:
            raise ConfigError("QuantileQNetwork: an embedding needs a head: pass head=.")
        self.embedding = embedding
        self.register_buffer("fractions", (torch.arange(n) + 0.5) / n)

    def _distribution(self, out: Tensor) -> tuple[Tensor, Tensor]:
        if self.embedding is None:
            return self._by_action(out), self.fractions
        fractions = torch.rand(*out.shape[:-1], self.n, device=out.device)
        return self._at(out, fractions), fractions

    def _values(self, out: Tensor) -> Tensor:
        if self.embedding is None:
            return self._by_action(out).mean(-1)
        return self._at(out, self.fractions.expand(*out.shape[:-1], -1)).mean(-1)

    def _at(self, out: Tensor, fractions: Tensor) -> Tensor:
        """Return the quantiles ``[*batch, actions, n]`` of fractions ``[*batch, n]``."""
        assert self.embedding is not None
        assert self.head is not None
        return self.head(self.embedding(out, fractions)).transpose(-1, -2)
