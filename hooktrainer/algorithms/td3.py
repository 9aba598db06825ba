"""Twin delayed deep deterministic policy gradient."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ..loop.cadence import Every
from ..networks import AdditiveGaussian, PerEnvGaussian
from ..objectives import CategoricalTD3Loss, TD3Loss
from ..run.config import Between, Fraction
from ..trainer import Trainer
from .algorithm import algorithm
from .config import LOCOMOTION, Settings
from .critics import WithCritics
from .off_policy import PENDULUM, RUNNING
from .task import Task


@algorithm
class TD3(WithCritics):
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Fujimoto et al., 2018, arXiv:1802.09477. Categorical critics, and noise of each environment, are
    those of FastTD3, for thousands of environments: Seo et al., 2025, arXiv:2505.22642. The
    defaults solve Pendulum; larger tasks need wider networks, and a million frames or more.
    """

    critics: Literal["twin", "categorical"] = "twin"
    """Q-functions: twin for two values; categorical for two distributions, as of C51"""
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
    sigma_max: float | None = None
    """greatest deviation, where that of each environment is drawn from sigma to this for each
    episode; None for sigma in all environments"""

    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": PENDULUM,
        **{robot: {**RUNNING, "lr": 3e-4} for robot in LOCOMOTION},
        # With 3e-4 Walker2d returned 480 after 400k frames. With a constant rate Hopper falls.
        "Hopper-v[45]": {**RUNNING, "lr": 1e-3, "anneal_lr": True},
        "Walker2d-v[45]": {**RUNNING, "lr": 1e-3},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        networks = self._networks_of(task)
        actor = task.deterministic_policy(networks)
        explores = AdditiveGaussian(actor, self.sigma)
        if self.sigma_max is not None:
            explores = PerEnvGaussian(actor, self.sigma, self.sigma_max)
        kind, atoms = (CategoricalTD3Loss, self._atoms()) if self._is_categorical else (TD3Loss, {})
        loss_module = kind(
            actor,
            self._qvalues(task, networks),
            policy_delay=self.policy_delay,
            policy_noise=self.policy_noise,
            noise_clip=self.noise_clip,
            loss_function="l2",
            **atoms,
            **self._loss_options(),
        ).to(task.device)
        trainer = self._trainer(
            task,
            loss_module,
            explores,
            # The actor has a gradient only at every policy_delay-th step.
            optimizer=self._optimizer(loss_module),
            target_every=Every(optim_steps=self.policy_delay),
        )
        return task.finish(trainer, actor)
