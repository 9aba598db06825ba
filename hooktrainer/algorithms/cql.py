"""Conservative Q-learning."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium import spaces

from ..errors import ConfigError
from ..networks import QNetwork
from ..objectives import CQLLoss, DiscreteCQLLoss
from ..objectives.sequences import ReplayLoss
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings
from .offline import PENDULUM, OfflineValues
from .task import Task


@algorithm
class CQL(OfflineValues):
    """Conservative Q-learning, offline, for one discrete action or continuous ones.

    Kumar et al., 2020, arXiv:2006.04779, over deep Q-learning or soft actor-critic. The defaults
    are the paper's, made for larger tasks than Pendulum.
    """

    min_q_weight: float = 1.0
    """weight of the penalty on Q-values of actions that are not in the data"""
    num_random: int = 10
    """continuous actions sampled from each of three distributions to estimate that penalty"""

    actions: ClassVar[Actions] = "discrete or continuous"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM | {"num_cells": (64, 64), "num_random": 4},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        options: dict[str, Any] = {
            "min_q_weight": self.min_q_weight,
            "gamma": self.gamma,
            "loss_function": "l2",
        }
        if isinstance(task.action_space, spaces.Discrete):
            if self.num_random != CQL.num_random:
                raise ConfigError(
                    f"cql: num_random={self.num_random} has no effect with discrete actions, of "
                    "which all are counted: leave num_random out."
                )
            network = task.networks.network(task.num_actions)
            policy: Any = QNetwork(network, task.in_keys, task.mask_key).to(task.device)
            loss_module: ReplayLoss = DiscreteCQLLoss(policy, double_dqn=True, **options)
        else:
            policy = task.squashed_policy()
            loss_module = CQLLoss(policy, task.qvalue(), num_random=self.num_random, **options)
        return self._trainer(task, loss_module, policy, self._updater(loss_module))
