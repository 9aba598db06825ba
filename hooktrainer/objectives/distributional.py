"""Deep Q-learning of distributions of the return: C51, QR-DQN and IQN."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from .common import Entries, KeyOf, next_key, this_key
from .dqn import DQNLoss
from .quantiles import quantile_huber


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
        distribution: tuple[Tensor, Tensor] = network.distribution(*inputs, **known)
        return distribution

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
    inside = returns.clamp(atoms[0], atoms[-1])
    distance = (inside.unsqueeze(-1) - atoms).abs() / (atoms[1] - atoms[0])
    return (probability.unsqueeze(-1) * (1 - distance).clamp_min(0.0)).sum(-2)


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
