"""The critics of soft actor-critic: which Q-functions there are, and which loss is theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from ..networks import Ensemble, NetworkFactory, ValueNetwork, mlp
from ..networks.ensemble import dropout_and_layer_norm, renormalized, renormalized_linear
from ..networks.network_factory import Layers
from ..objectives import CrossQLoss, REDQLoss, SACLoss, SoftUpdate, TQCLoss
from ..objectives.sequences import ReplayLoss
from ..run.config import Count, Fraction, Number
from .off_policy import ActorCriticOffPolicy
from .task import Task


@dataclass(frozen=True, kw_only=True)
class WithCritics(ActorCriticOffPolicy):
    """Fields of SAC's critics."""

    critics: Literal["twin", "tqc", "redq", "droq", "crossq"] = "twin"
    """Q-functions: twin for SAC's two; tqc, Kuznetsov et al., 2020; redq, Chen et al., 2021;
    droq, Hiraoka et al., 2022; crossq, Bhatt et al., 2024"""
    num_critics: Count | None = None
    """number of Q-functions, but for twin; None for 10 with redq and 2 with others"""
    critic_cells: tuple[Count, ...] | None = None
    """units in each hidden layer of the Q-functions; None for num_cells"""
    policy_delay: Count | None = None
    """optimizer steps per update of the actor and the temperature; None for 3 with crossq, else
    1"""
    num_quantiles: Count = 25
    """with tqc, quantiles of each Q-function"""
    drop_quantiles: Number = 2
    """with tqc, quantiles of each Q-function that the target leaves out"""
    dropout: Fraction = 0.01
    """with droq, probability that a hidden unit of a Q-function is left out"""

    def _loss_kind(self) -> Callable[..., SACLoss]:
        """Return what makes the loss of the critics."""
        number, drop = self.num_quantiles, self.drop_quantiles
        kinds: dict[str, Callable[..., SACLoss]] = {
            "twin": SACLoss,
            "tqc": partial(TQCLoss, num_quantiles=number, drop_quantiles=drop),
            "redq": REDQLoss,
            "droq": REDQLoss,
            "crossq": CrossQLoss,
        }
        delay = {} if self.policy_delay is None else {"policy_delay": self.policy_delay}
        return partial(kinds[self.critics], **delay)

    def _actor_layers(self) -> Layers:
        """Return what makes the layers of the actor."""
        return partial(mlp, linear=renormalized_linear) if self.critics == "crossq" else mlp

    def _updater(self, loss_module: ReplayLoss) -> SoftUpdate | None:
        return None if self.critics == "crossq" else super()._updater(loss_module)

    def _optimizer_of(
        self, loss_module: SACLoss, actor_lr: float | None
    ) -> torch.optim.Optimizer | None:
        """Return the optimizer; ``None`` for the usual one of all parameters."""
        if self.critics == "crossq":
            return self._optimizer(loss_module, actor_lr, betas=(0.5, 0.999))
        if actor_lr is None and loss_module.policy_delay == 1:
            return None
        return self._optimizer(loss_module, actor_lr)

    def _qvalues(self, task: Task, networks: NetworkFactory) -> ValueNetwork | list[ValueNetwork]:
        if self.critics == "twin" and self.critic_cells is None:
            return super()._qvalues(task, networks)
        if self.critics == "twin":
            return [task.qvalue(networks, self._mlp) for _ in range(2)]
        return [task.qvalue(networks, self._ensemble)]

    def _mlp(
        self, features: int, outputs: int, cells: Sequence[int], activation: Callable[[], nn.Module]
    ) -> nn.Module:
        return mlp(features, outputs, self.critic_cells or cells, activation)

    def _ensemble(
        self, features: int, outputs: int, cells: Sequence[int], activation: Callable[[], nn.Module]
    ) -> nn.Module:
        number = self.num_critics or (10 if self.critics == "redq" else 2)
        options: dict[str, Any] = {}
        if self.critics == "droq":
            options["norm"] = dropout_and_layer_norm(self.dropout)
        elif self.critics == "crossq":
            options["linear"] = renormalized
        elif self.critics == "tqc":
            outputs *= self.num_quantiles
        return Ensemble(
            number, features, outputs, self.critic_cells or cells, activation, **options
        )
