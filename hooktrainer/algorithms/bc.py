"""Behavior cloning."""

from __future__ import annotations

from typing import ClassVar

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

    deterministic_policy: bool = False
    """whether the policy is deterministic, for continuous actions; trained on the squared error"""

    clip_actions = True  # where the policy's are not within bounds

    actions: ClassVar[Actions] = "any"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": {name: value for name, value in PENDULUM.items() if name != "tau"},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        if self.deterministic_policy and not isinstance(task.action_space, spaces.Box):
            raise ConfigError(
                "bc: deterministic_policy=True is for continuous actions, and those of "
                f"{task.env_name} are {task.action_space}: leave it out."
            )
        drawn = not self.deterministic_policy
        actor = self._policy(task) if drawn else task.deterministic_policy()
        return self._trainer(task, BCLoss(actor), actor)
