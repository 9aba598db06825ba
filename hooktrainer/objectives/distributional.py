"""Losses of distributions of the return: C51, QR-DQN and IQN; categorical Q(s, a)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from ..networks.q_network import atoms_between
from .actor_critic import ActorCriticLoss
from .common import Entries, KeyOf, next_key, this_key
from .dqn import DQNLoss


class DistributionalDQNLoss(DQNLoss):
    """Base class of `CategoricalDQNLoss` and `QuantileDQNLoss`.

    Returns ``loss``, and writes ``"td_error"`` ``[*batch, 1]``, the priorities of prioritized
    replay. Next actions are those of the greatest mean. Arguments are those of `DQNLoss`.
    """

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        now, places = self._distribution(self.value_network, entries)
        now = _of_action(now, self._action_index(entries, now.shape[:-1]))
        with torch.no_grad():
            chooses = self.value_network if self.double_dqn else self._delayed
            best = self._action_value(chooses, entries, next_key).argmax(-1)
            then, next_places = self._distribution(self._delayed, entries, next_key)
            then = _of_action(then, best)
        loss, priority = self._divergence(entries, now, places, then, next_places)
        return {"loss": self._reduce(loss, entries), "td_error": priority.detach()}

    @abstractmethod
    def _divergence(
        self, entries: Entries, now: Tensor, places: Tensor, then: Tensor, next_places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return losses and priorities ``[batch]`` of distributions ``[batch, n]``."""

    def _distribution(
        self, network: Any, entries: Entries, at: KeyOf = this_key
    ) -> tuple[Tensor, Tensor]:
        inputs, known = self._called_with(network, entries, at)
        return network.distribution(*inputs, **known)

    def _target_returns(self, entries: Entries, returns: Tensor) -> Tensor:
        """Return the targets of next returns, ``[batch, n]``."""
        return self._one_step_target(entries, returns.T).T


def _of_action(distribution: Tensor, action: Tensor) -> Tensor:
    """Return, of ``[batch, actions, n]``, what is of actions ``[batch]``: ``[batch, n]``."""
    index = action.view(-1, 1, 1).expand(-1, 1, distribution.shape[-1])
    return distribution.gather(1, index).squeeze(1)


class CategoricalDQNLoss(DistributionalDQNLoss):
    """The loss of C51 (Bellemare et al., 2017, arXiv:1707.06887), with TorchRL's values.

    It is the cross entropy to the target distribution, projected onto the atoms. The priority is
    the Kullback-Leibler divergence, as in Rainbow (Hessel et al., 2018, arXiv:1710.02298).

    Args:
        value_network: A `CategoricalQNetwork`.
        options: As for `DQNLoss`; ``loss_function`` is not used.
    """

    def _divergence(
        self, entries: Entries, now: Tensor, places: Tensor, then: Tensor, next_places: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            returns = self._target_returns(entries, next_places.expand_as(then))
            target = project(then.exp(), returns, places)
            entropy = -torch.xlogy(target, target).sum(-1)
        loss = -(target * now).sum(-1)
        return loss, (loss - entropy).clamp_min(0.0)  # rounding may make it negative


def project(probability: Tensor, returns: Tensor, atoms: Tensor) -> Tensor:
    """Share probabilities of returns among the nearest atoms, equation 7 of C51's paper.

    Args:
        probability: ``[batch, n]``.
        returns: Where they are, ``[batch, n]``; beyond the atoms those of the last one.
        atoms: ``[m]``, at equal distances.

    Returns:
        The probabilities of the atoms, ``[batch, m]``.
    """
    probability = probability.to(atoms.dtype)  # autocast may have halved it
    place = (returns.clamp(atoms[0], atoms[-1]) - atoms[0]) / (atoms[1] - atoms[0])
    below = place.floor().clamp_max(len(atoms) - 2)
    above = probability * (place - below).clamp(0.0, 1.0)  # rounding may put it beyond the last
    index = below.long().clamp_min(0)  # of a return that is no number, as its share is none
    shared = probability.new_zeros(len(probability), len(atoms))
    shared.scatter_add_(1, index, probability - above)
    return shared.scatter_add_(1, index + 1, above)


class QuantileDQNLoss(DistributionalDQNLoss):
    """The loss of QR-DQN (Dabney et al., 2018, arXiv:1710.10044) and of IQN (arXiv:1806.06923).

    It is `quantile_huber`, which is also the priority of a row.

    Args:
        value_network: A `QuantileQNetwork`.
        options: As for `DQNLoss`; ``loss_function`` is not used.
    """

    def _divergence(
        self, entries: Entries, now: Tensor, places: Tensor, then: Tensor, next_places: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            target = self._target_returns(entries, then)
        loss = quantile_huber(now, target, places)
        return loss, loss


def quantile_huber(quantiles: Tensor, targets: Tensor, fractions: Tensor) -> Tensor:
    """The quantile Huber loss with threshold 1, ``[*batch]``.

    Dabney et al., 2018, arXiv:1710.10044. It is summed over the quantiles, and is the mean over
    the targets.

    Args:
        quantiles: Estimates of the quantiles, ``[*batch, quantiles]``.
        targets: Samples, or quantiles, of the target distribution, ``[*batch, targets]``.
        fractions: The probability below each quantile, ``[quantiles]`` or ``[*batch, quantiles]``.
    """
    shape = (*quantiles.shape, targets.shape[-1])
    estimates, samples = quantiles.unsqueeze(-1).expand(shape), targets.unsqueeze(-2).expand(shape)
    distance = smooth_l1_loss(estimates, samples, reduction="none")
    weight = (fractions.unsqueeze(-1) - (samples < estimates).to(fractions.dtype)).abs()
    return (weight * distance).mean(-1).sum(-1)


# -- Q-functions of continuous actions.


class CategoricalValues(ActorCriticLoss):
    """Base class of actor-critic losses whose Q-functions learn probabilities of fixed returns.

    The target is the distribution of least mean of the next states' (Seo et al., 2025,
    arXiv:2505.22642), projected onto the atoms. ``loss_qvalue`` is the cross entropy to it, summed
    over the Q-functions; ``"td_error"`` is of the means.

    Args:
        actor_network: The policy.
        qvalue_network: Modules that write logits, ``"state_action_value"`` ``[*batch, num_atoms]``;
            or one that is all of them, ``[*batch, networks * num_atoms]``.
        num_atoms: Number of returns, at equal distances from ``v_min`` to ``v_max``.
        v_min: The least return.
        v_max: The greatest return.
        **options: Further arguments of the loss; ``loss_function`` is not used.

    Raises:
        ConfigError: If there are less than two atoms, or ``v_min`` is not below ``v_max``.
    """

    atoms: Tensor
    _may_hold_all = True

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        num_atoms: int = 101,
        v_min: float = -5.0,
        v_max: float = 5.0,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        atoms = atoms_between(v_min, v_max, num_atoms, type(self).__name__, "num_atoms")
        self.register_buffer("atoms", atoms, persistent=False)

    def _by_network(self, value: Tensor) -> Tensor:
        """Logits, ``[networks, batch, num_atoms]``."""
        number = len(self.atoms)
        return value.reshape(-1, value.shape[-1] // number, number).transpose(0, 1)

    def _target(self, entries: Entries, following: Tensor, cost: Tensor | float = 0.0) -> Tensor:
        """Probabilities, ``[batch, num_atoms]``."""
        least = self._means(following).argmin(0)
        rows = torch.arange(len(least), device=least.device)
        returns = self._one_step_target(entries, self.atoms.unsqueeze(-1) - cost)
        return project(following[least, rows].softmax(-1), returns.T, self.atoms)

    def _errors(self, values: Tensor, target: Tensor) -> Tensor:
        return -(target * values.log_softmax(-1)).sum((0, -1))

    def _means(self, values: Tensor) -> Tensor:
        return values.softmax(-1) @ self.atoms

    def _target_means(self, target: Tensor) -> Tensor:
        return target @ self.atoms
