"""Soft actor-critic with other critics: ensembles, distributions, normalized ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import check_count
from ..errors import ConfigError
from ..networks import batch_statistics
from .common import Entries, KeyOf, evaluate, next_key, this_key
from .distributional import CategoricalValues, quantile_huber
from .sac import SACLoss

# -- Randomized ensembled double Q-learning (Chen et al., 2021, arXiv:2101.05982).


class REDQLoss(SACLoss):
    """The SAC loss of an ensemble: the target is the least value of a random subset of it.

    The policy maximizes the mean value. With two Q-functions that have dropout and layer
    normalization it is the loss of DroQ (Hiraoka et al., 2022, arXiv:2110.02034). Reads and returns
    what `SACLoss` does.

    Args:
        actor_network: As for `SACLoss`.
        qvalue_network: Modules that write ``"state_action_value"``, ``[*batch, 1]``; or one that
            is all of them, ``[*batch, networks]``.
        num_in_target: Size of the subset.
        **options: Further arguments of `SACLoss`.
    """

    _may_hold_all = True

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        num_in_target: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        check_count("num_in_target", num_in_target)
        self.num_in_target = num_in_target

    def _for_policy(self, values: Tensor) -> Tensor:
        return values.mean(0)

    def _for_target(self, values: Tensor) -> Tensor:
        if self.num_in_target < len(values):
            chosen = torch.randperm(len(values), device=values.device)[: self.num_in_target]
            values = values.index_select(0, chosen)
        return values.amin(0)


# -- Truncated quantile critics (Kuznetsov et al., 2020, arXiv:2005.04269).


class TQCLoss(SACLoss):
    """The SAC loss with distributions as values, whose highest quantiles the target leaves out.

    Quantiles of all Q-functions together are the target's distribution. The policy maximizes their
    mean. Reads and returns what `SACLoss` does; ``loss_qvalue`` is the mean over Q-functions and
    quantiles.

    Args:
        actor_network: As for `SACLoss`.
        qvalue_network: Modules that write ``"state_action_value"``, ``[*batch, num_quantiles]``;
            or one that is all of them, ``[*batch, networks * num_quantiles]``.
        num_quantiles: Quantiles of each Q-function.
        drop_quantiles: Quantiles that the target leaves out, for each Q-function.
        **options: Further arguments of `SACLoss`.

    Raises:
        ConfigError: If no quantile is left.
    """

    fractions: Tensor
    _may_hold_all = True

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        num_quantiles: int = 25,
        drop_quantiles: int = 2,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        if not 0 <= drop_quantiles < num_quantiles:
            raise ConfigError(
                f"TQCLoss: {drop_quantiles=} of {num_quantiles=} leaves none: drop fewer, and not "
                "fewer than 0."
            )
        self._number, self.drop_quantiles = num_quantiles, drop_quantiles
        fractions = (torch.arange(num_quantiles) + 0.5) / num_quantiles
        self.register_buffer("fractions", fractions, persistent=False)

    def _by_network(self, value: Tensor) -> Tensor:
        """``[networks, batch, num_quantiles]``."""
        return value.reshape(-1, value.shape[-1] // self._number, self._number).transpose(0, 1)

    def _means(self, values: Tensor) -> Tensor:
        return values.mean(-1)

    def _target_means(self, target: Tensor) -> Tensor:
        return target.mean(0)

    def _for_policy(self, values: Tensor) -> Tensor:
        return self._means(values).mean(0)

    def _for_target(self, values: Tensor) -> Tensor:
        """The lower quantiles, ``[quantiles, batch]``."""
        together = values.transpose(1, 2).flatten(0, 1).sort(0).values
        return together[: len(together) - self.drop_quantiles * len(values)]

    def _errors(self, values: Tensor, target: Tensor) -> Tensor:
        targets = target.t().expand(*values.shape[:2], -1)
        loss = quantile_huber(values, targets, self.fractions)
        return loss.mean(0) / self._number


# -- Categorical critics (Bellemare et al., 2017, arXiv:1707.06887).


class CategoricalSACLoss(CategoricalValues, SACLoss):
    """The SAC loss with categorical Q-functions.

    Entropy is a part of the returns. The policy maximizes the least mean. For its arguments see
    `CategoricalValues` and `SACLoss`, whose entries it reads and returns.
    """


# -- CrossQ (Bhatt et al., 2024, arXiv:1902.05605).


class CrossQLoss(SACLoss):
    """The SAC loss without target networks, for Q-functions with batch (re)normalization.

    The Q-functions are called once for both the batch's and the next states and actions, so that
    one normalization serves both. `BatchRenorm` layers learn in this call, those of the actor in
    its update; all else uses their running statistics. Reads and returns what `SACLoss` does.

    Args:
        actor_network: As for `SACLoss`.
        qvalue_network: As for `REDQLoss`.
        policy_delay: As for `SACLoss`.
        **options: Further arguments of `SACLoss`.
    """

    _has_target = False
    _may_hold_all = True

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        policy_delay: int = 3,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, policy_delay=policy_delay, **options)

    def _values_and_target(self, entries: Entries, alpha: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            action, log_prob = self._drawn(entries, next_key)
        values, following = self._joint_values(self.qvalue_network, entries, action)
        with torch.no_grad():
            if self._has_target:
                _, following = self._joint_values(self.target_qvalue_network, entries, action)
            return values, self._target(entries, following, alpha * log_prob)

    def _joint_values(
        self, networks: Any, entries: Entries, next_action: Tensor
    ) -> Sequence[Tensor]:
        """Return the values now and those of the next states, ``[networks, batch]`` each."""
        key, keys = self.tensor_keys.action, self.tensor_keys
        found = []
        with batch_statistics(networks, self.training):
            for each in networks:
                now, known = self._called_with(each, entries, this_key, {key: self._taken(entries)})
                then, after = self._called_with(each, entries, next_key, {key: next_action})
                inputs = [torch.cat(pair) for pair in zip(now, then, strict=True)]
                features: Any = {name: torch.cat([known[name], after[name]]) for name in known}
                out = evaluate(each, inputs, keys.state_action_value, self._batch_dims, **features)
                found.append(self._by_network(out))
        return torch.cat(found).chunk(2, 1)

    def _drawn(self, entries: Entries, at: KeyOf = this_key) -> tuple[Tensor, Tensor]:
        with batch_statistics(self.actor_network, self.training and at is this_key):
            return super()._drawn(entries, at)


# -- XQC (Palenicek et al., 2025, arXiv:2509.25174).


class XQCLoss(CategoricalValues, CrossQLoss):
    """The SAC loss with categorical, batch-normalized Q-functions and target networks.

    The Q-functions and their targets are called as those of `CrossQLoss`: for both the batch's and
    the next states and actions, with the statistics of this batch. Keep the weights at norm 1 with
    `hooktrainer.networks.project_weights`, and scale rewards so that returns are between the atoms.

    For its arguments see `CategoricalValues` and `CrossQLoss`, whose entries it reads and returns.
    """

    _has_target = True
