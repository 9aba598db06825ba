"""Implicit Q-learning."""

from __future__ import annotations

from typing import ClassVar

from gymnasium import spaces
from torch import nn

from ..objectives import DiscreteIQLLoss, IQLLoss
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings
from .offline import PENDULUM, OfflineValues
from .task import Task


@algorithm
class IQL(OfflineValues):
    """Implicit Q-learning, offline, for one discrete action or continuous ones.

    Kostrikov et al., 2021, arXiv:2110.06169. The defaults are the paper's, made for larger tasks
    than Pendulum.
    """

    expectile: float = 0.95
    """expectile of the Q-values that the value function is fitted to; above 0.5"""
    temperature: float = 1.0
    """inverse temperature of the actor's weights, exp(temperature * advantage)"""

    clip_actions = True  # which may be drawn beyond their bounds

    actions: ClassVar[Actions] = "discrete or continuous"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM | {"num_cells": (128, 128)},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        actor = self._policy(task)
        if isinstance(task.action_space, spaces.Discrete):
            kind: type[IQLLoss] = DiscreteIQLLoss
            qvalue: nn.Module = task.action_values()
        else:
            kind, qvalue = IQLLoss, task.qvalue()
        loss_module = kind(
            actor,
            qvalue,
            task.value(),
            temperature=self.temperature,
            expectile=self.expectile,
            gamma=self.gamma,
            loss_function="l2",
        )
        return self._trainer(task, loss_module, actor, self._updater(loss_module))
