"""Deep deterministic policy gradient."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ..networks import AdditiveGaussian
from ..objectives import DDPGLoss
from ..run.config import Between
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .off_policy import PENDULUM, ActorCriticOffPolicy
from .task import Task


@algorithm
class DDPG(ActorCriticOffPolicy):
    """Deep deterministic policy gradient, for continuous actions.

    Lillicrap et al., 2015, arXiv:1509.02971, with Gaussian noise to explore. The defaults solve
    Pendulum; larger tasks need wider networks, and a million frames or more.
    """

    sigma: Annotated[float, Between(0.03, 0.3, log=True)] = 0.1
    """standard deviation of the exploration noise, for actions scaled to [-1, 1]"""

    tuned_for: ClassVar[Settings] = {"Pendulum-v1": PENDULUM}

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        networks = self._networks_of(task)
        actor = task.deterministic_policy(networks)
        loss_module = DDPGLoss(actor, task.qvalue(networks), **self._loss_options())
        explores = AdditiveGaussian(actor, self.sigma)
        return task.finish(self._trainer(task, loss_module.to(task.device), explores), actor)
