"""Behavior cloning."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium import spaces

from ..errors import ConfigError
from ..objectives import BCLoss
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings
from .offline import PENDULUM, Offline
from .task import Task


@algorithm
class BC(Offline):
    """Behavior cloning: imitates the actions of a data set, of any kind.

    Pomerleau, 1988, ALVINN: An Autonomous Land Vehicle in a Neural Network.
    """

    deterministic: bool = False
    """whether the policy is deterministic, for continuous actions; trained on the squared error"""

    actions: ClassVar[Actions] = "any"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": {name: value for name, value in PENDULUM.items() if name != "tau"},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        if self.deterministic and not isinstance(task.action_space, spaces.Box):
            raise ConfigError(
                f"bc: deterministic=True is for continuous actions, and those of {task.env_name} "
                f"are {task.action_space}: leave it out."
            )
        actor: Any = task.deterministic_policy() if self.deterministic else self._policy(task)
        return self._trainer(task, BCLoss(actor), actor)
