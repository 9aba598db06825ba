"""Twin delayed deep deterministic policy gradient."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ..loop.cadence import Every
from ..networks import AdditiveGaussian
from ..objectives import TD3Loss
from ..run.config import Between, Fraction
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .off_policy import PENDULUM, ActorCriticOffPolicy
from .task import Task


@algorithm
class TD3(ActorCriticOffPolicy):
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Fujimoto et al., 2018, arXiv:1802.09477. The defaults solve Pendulum; larger tasks need wider
    networks, and a million frames or more.
    """

    tau: Fraction = 0.01
    """rate of the soft updates of the target networks"""
    policy_delay: int = 2
    """optimizer steps per update of the actor and of the target networks"""
    policy_noise: float = 0.2
    """standard deviation of the noise on target actions, for actions scaled to [-1, 1]"""
    noise_clip: float = 0.5
    """bound of that noise, for actions scaled to [-1, 1]"""
    sigma: Annotated[float, Between(0.03, 0.3, log=True)] = 0.1
    """standard deviation of the exploration noise, for actions scaled to [-1, 1]"""

    tuned_for: ClassVar[Settings] = {"Pendulum-v1": PENDULUM}

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        networks = self._networks_of(task)
        actor = task.deterministic_policy(networks)
        loss_module = TD3Loss(
            actor,
            self._qvalues(task, networks),
            policy_delay=self.policy_delay,
            policy_noise=self.policy_noise,
            noise_clip=self.noise_clip,
            loss_function="l2",
            **self._loss_options(),
        ).to(task.device)
        trainer = self._trainer(
            task,
            loss_module,
            AdditiveGaussian(actor, self.sigma),
            # The actor has a gradient only at every policy_delay-th step.
            optimizer=self._optimizer(loss_module),
            target_every=Every(optim_steps=self.policy_delay),
        )
        return task.finish(trainer, actor)
