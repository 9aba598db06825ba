"""Off-policy learning of several agents with central critics: MADDPG and MASAC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ..networks import AdditiveGaussian, AgentsPolicy, DeterministicPolicy, TanhGaussianPolicy
from ..objectives import MADDPGLoss, MASACLoss, SoftUpdate
from ..objectives.maddpg import CentralCriticLoss
from ..run.config import Between, Count, Fraction, Rate
from ..trainer import Trainer
from .agents import AgentsOffPolicy, AgentsTask
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings

# A step of many environments costs VMAS hardly more than one of few.
_TUNED: Settings = {"vmas/*": {"num_envs": 64, "gamma": 0.99}}


@dataclass(frozen=True, kw_only=True)
class CentralCritics(AgentsOffPolicy):
    """Fields of MADDPG and MASAC."""

    optim_steps_per_batch: Count = 16
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    gamma: Fraction = 0.95
    tau: Annotated[Fraction, Between(0.001, 0.05, log=True)] = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""
    max_grad_norm: float | None = 1.0
    """the gradient is clipped to this norm; None for no clipping"""

    actions: ClassVar[Actions] = "continuous"
    policy_type: ClassVar[Any]
    num_qvalues: ClassVar[int]

    def _loss(self, actors: Any, critics: Any, **options: Any) -> CentralCriticLoss:
        raise NotImplementedError

    def _explores(self, actor: Any) -> Any:
        """Return what collects for a group."""
        return actor

    def build(self, task: AgentsTask) -> Trainer:
        """Wire the trainer."""
        actors = {one.name: task.bounded_policy(one, self.policy_type) for one in task.groups}
        critics = {
            one.name: [task.central_q(one) for _ in range(self.num_qvalues)] for one in task.groups
        }
        loss = self._loss(actors, critics, **self._loss_options())
        policy = AgentsPolicy({name: self._explores(actor) for name, actor in actors.items()})
        trainer = self._trainer(task, loss, policy, SoftUpdate(loss, tau=self.tau))
        return task.finish(trainer, AgentsPolicy(actors))


@algorithm
class MADDPG(CentralCritics):
    """Multi-agent deep deterministic policy gradient, for continuous actions.

    The Q-functions see the observations, or the state, and the actions of all agents; policies see
    their own observation. With a memory, the Q-functions see the state and what all agents remember
    of their observations. Lowe et al., 2017, arXiv:1706.02275.
    """

    sigma: Annotated[float, Between(0.03, 0.3, log=True)] = 0.1
    """standard deviation of the exploration noise, for actions scaled to [-1, 1]"""

    policy_type: ClassVar[Any] = DeterministicPolicy
    num_qvalues: ClassVar[int] = 1
    tuned_for: ClassVar[Settings] = {
        # With less noise, or faster, its actions are soon at their bounds, and stay there.
        "vmas/*": {
            **_TUNED["vmas/*"],
            "lr": 3e-4,
            "sigma": 0.3,
            "init_random_frames": 10_000,
            "max_grad_norm": 0.5,
        }
    }

    def _loss(self, actors: Any, critics: Any, **options: Any) -> MADDPGLoss:
        return MADDPGLoss(actors, critics, **options)

    def _explores(self, actor: Any) -> AdditiveGaussian:
        return AdditiveGaussian(actor, self.sigma)


@algorithm
class MASAC(CentralCritics):
    """Multi-agent soft actor-critic, for continuous actions.

    SAC (Haarnoja et al., 2018, arXiv:1812.05905) with the Q-functions of MADDPG, two for each
    group, and a learned temperature for each group.
    """

    alpha_init: float = 1.0
    """initial temperature, the weight of the entropy"""

    policy_type: ClassVar[Any] = TanhGaussianPolicy
    num_qvalues: ClassVar[int] = 2
    tuned_for: ClassVar[Settings] = _TUNED

    def _loss(self, actors: Any, critics: Any, **options: Any) -> MASACLoss:
        return MASACLoss(actors, critics, alpha_init=self.alpha_init, **options)
