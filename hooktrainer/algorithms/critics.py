"""The Q-functions of SAC and TD3, by the field ``critics``, and their losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import nn

from ..loop.hook import EARLY
from ..networks import Ensemble, NetworkFactory, ValueNetwork, mlp
from ..networks.ensemble import (
    dropout_and_layer_norm,
    project_weights,
    renormalized,
    renormalized_linear,
    unit_mlp,
)
from ..networks.network_factory import Layers
from ..objectives import (
    CategoricalSACLoss,
    CrossQLoss,
    REDQLoss,
    SACLoss,
    SoftUpdate,
    TQCLoss,
    XQCLoss,
)
from ..objectives.sequences import ReplayLoss
from ..run.config import Between, Count, Fraction, Needs, Number
from ..trainer import Trainer
from .off_policy import ActorCriticOffPolicy
from .task import Task

_CATEGORICAL = Needs("critics", ("categorical", "xqc"))
_SEVERAL = Needs("critics", ("tqc", "redq", "droq", "crossq", "categorical", "xqc"))
_WITH_TARGETS = Needs("critics", ("twin", "tqc", "redq", "droq", "categorical", "xqc"))


@dataclass(frozen=True, kw_only=True)
class WithCritics(ActorCriticOffPolicy):
    """Fields of the Q-functions of SAC and TD3."""

    critics: str = "twin"
    """Q-functions"""
    critic_cells: tuple[Count, ...] | None = None
    """units in each hidden layer of the Q-functions; None for num_cells"""
    num_atoms: Annotated[Count, _CATEGORICAL] = 101
    """with categorical or xqc critics, returns of which the probabilities are learned"""
    v_min: Annotated[float, _CATEGORICAL] = -5.0
    """the least of these returns"""
    v_max: Annotated[float, _CATEGORICAL] = 5.0
    """the greatest of these returns"""

    @property
    def _is_categorical(self) -> bool:
        return self.critics in ("categorical", "xqc")

    def _atoms(self) -> dict[str, Any]:
        """Return arguments of the losses of categorical critics."""
        return {"num_atoms": self.num_atoms, "v_min": self.v_min, "v_max": self.v_max}

    def _scales_rewards(self) -> bool:
        return self._is_categorical if self.scale_rewards is None else self.scale_rewards

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
        number, values, options = self._ensemble_options()
        cells = self.critic_cells or cells
        return Ensemble(number, features, outputs * values, cells, activation, **options)

    def _ensemble_options(self) -> tuple[int, int, dict[str, Any]]:
        """Return the number of networks, of outputs of each, and arguments of `Ensemble`."""
        return 2, self.num_atoms if self._is_categorical else 1, {}


@dataclass(frozen=True, kw_only=True)
class WithSACCritics(WithCritics):
    """Fields of SAC's critics."""

    critics: Literal["twin", "tqc", "redq", "droq", "crossq", "categorical", "xqc"] = "twin"
    """Q-functions: twin for SAC's two; tqc, Kuznetsov et al., 2020; redq, Chen et al., 2021;
    droq, Hiraoka et al., 2022; crossq, Bhatt et al., 2024; categorical, as of C51; xqc, Palenicek
    et al., 2025"""
    tau: Annotated[Fraction, Between(0.001, 0.05, log=True), _WITH_TARGETS] = 0.01
    num_critics: Annotated[Count | None, _SEVERAL] = None
    """number of Q-functions, but for twin; None for 10 with redq and 2 with others"""
    policy_delay: Count | None = None
    """optimizer steps per update of the actor and the temperature; None for 3 with crossq and xqc,
    else 1"""
    alpha_init: float | None = None
    """initial temperature, the weight of the entropy; None for 0.01 with xqc, else 1"""
    num_quantiles: Annotated[Count, Needs("critics", ("tqc",))] = 25
    """with tqc, quantiles of each Q-function"""
    drop_quantiles: Annotated[Number, Needs("critics", ("tqc",))] = 2
    """with tqc, quantiles of each Q-function that the target leaves out"""
    dropout: Annotated[Fraction, Needs("critics", ("droq",))] = 0.01
    """with droq, probability that a hidden unit of a Q-function is left out"""

    def _loss_kind(self) -> Callable[..., SACLoss]:
        """Return the class of the loss, with the arguments of its critics."""
        number, drop = self.num_quantiles, self.drop_quantiles
        kinds: dict[str, Callable[..., SACLoss]] = {
            "twin": SACLoss,
            "tqc": partial(TQCLoss, num_quantiles=number, drop_quantiles=drop),
            "redq": REDQLoss,
            "droq": REDQLoss,
            "crossq": CrossQLoss,
            "categorical": partial(CategoricalSACLoss, **self._atoms()),
            "xqc": partial(XQCLoss, **self._atoms()),
        }
        alpha = 0.01 if self.critics == "xqc" else 1.0
        options = {"alpha_init": alpha if self.alpha_init is None else self.alpha_init}
        if self.policy_delay is not None:
            options["policy_delay"] = self.policy_delay
        return partial(kinds[self.critics], **options)

    def _actor_layers(self) -> Layers:
        """Return the function that makes the layers of the actor."""
        if self.critics == "xqc":
            return unit_mlp
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

    def _trainer(self, task: Task, loss_module: Any, explores: Any, **options: Any) -> Trainer:
        trainer = super()._trainer(task, loss_module, explores, **options)
        if self.critics == "xqc":  # before the target networks move
            networks = loss_module.actor_network, loss_module.qvalue_network
            trainer.register_op("post_optim", partial(project_weights, *networks), priority=EARLY)
        return trainer

    def _ensemble_options(self) -> tuple[int, int, dict[str, Any]]:
        _, values, options = super()._ensemble_options()
        if self.critics == "droq":
            options["norm"] = dropout_and_layer_norm(self.dropout)
        elif self.critics == "crossq":
            options["linear"] = renormalized
        elif self.critics == "xqc":
            options["make"] = unit_mlp
        elif self.critics == "tqc":
            values = self.num_quantiles
        return self.num_critics or (10 if self.critics == "redq" else 2), values, options
