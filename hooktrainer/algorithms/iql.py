"""Implicit Q-learning."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from ..networks import DiagonalGaussianPolicy
from ..objectives import IQLLoss
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .offline import PENDULUM, Offline
from .task import Task


@algorithm
class IQL(Offline):
    """Implicit Q-learning, offline, for continuous actions.

    Kostrikov et al., 2021, arXiv:2110.06169. The defaults are the paper's, made for larger tasks
    than Pendulum.
    """

    expectile: float = 0.95
    """expectile of the Q-values that the value function is fitted to; above 0.5"""
    temperature: float = 1.0
    """inverse temperature of the actor's weights, exp(temperature * advantage)"""

    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM | {"num_cells": (128, 128)},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        mean = task.deterministic_policy()
        bounded = nn.Sequential(mean.network, mean.box)
        loss_module = IQLLoss(
            DiagonalGaussianPolicy(bounded, mean.action_features),
            task.qvalue(),
            task.value(),
            temperature=self.temperature,
            expectile=self.expectile,
            gamma=self.gamma,
            loss_function="l2",
        )
        return self._trainer(task, loss_module)
