"""Conservative Q-learning."""

from __future__ import annotations

from typing import ClassVar

from ..objectives import CQLLoss
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .offline import PENDULUM, Offline
from .task import Task


@algorithm
class CQL(Offline):
    """Conservative Q-learning over soft actor-critic, offline, for continuous actions.

    Kumar et al., 2020, arXiv:2006.04779. The defaults are the paper's, made for larger tasks than
    Pendulum.
    """

    min_q_weight: float = 1.0
    """weight of the penalty on Q-values of actions that are not in the data"""
    num_random: int = 10
    """actions sampled from each of three distributions to estimate that penalty"""

    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM | {"num_cells": (64, 64), "num_random": 4},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        loss_module = CQLLoss(
            task.squashed_policy(),
            task.qvalue(),
            min_q_weight=self.min_q_weight,
            num_random=self.num_random,
            gamma=self.gamma,
            loss_function="l2",
        )
        return self._trainer(task, loss_module)
