"""Trust region policy optimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from torch import nn

from ..hooks import TrustRegion
from ..networks import Policy, ValueNetwork
from ..objectives import TRPOLoss
from ..run.config import Between, Count, Fraction, Needs, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .config import CARTPOLE, Settings
from .on_policy import OnPolicy
from .task import RunTask


@algorithm
class TRPO(OnPolicy):
    """Trust region policy optimization, for any actions.

    Schulman et al., 2015, arXiv:1502.05477: one natural gradient step of the policy on each batch,
    of limited divergence; then epochs of the value in mini-batches. Layers that both share, as with
    images or a memory, are trained by the policy alone. The defaults solve CartPole.
    """

    steps_per_batch: Count = 128
    max_kl: Annotated[float, Between(1e-3, 0.1, log=True)] = 0.01
    """limit of the divergence between the policies before and after a step, in nats"""
    damping: float = 0.1
    """multiple of the identity added to the Fisher information"""
    cg_steps: Count = 15
    """steps of conjugate gradient that find the natural gradient"""
    backtracks: Count = 10
    """step lengths that the line search tries, each 0.8 times the one before"""
    lmbda: Annotated[Fraction, Between(0.8, 1.0)] = 0.95
    """lambda of generalized advantage estimation"""
    num_epochs: Count = 10
    """epochs of the value over each batch"""
    mini_batch_size: Count = 128
    """frames in each mini-batch of the value"""
    sequence_length: Annotated[Count | None, Needs("memory")] = None
    """with a memory, steps of the sequences that make up a mini-batch; None for steps_per_batch, or
    mini_batch_size if that is less"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """learning rate of the value"""
    anneal_lr: bool = False
    max_grad_norm: float | None = None
    """the value's gradient is clipped to this norm; None for no clipping"""

    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 200_000, "eval_interval": 4_096, **CARTPOLE},
    }

    def _loss(self, actor: Policy, critic: ValueNetwork) -> TRPOLoss:
        return TRPOLoss(
            actor, critic, entropy_coeff=self.entropy_coeff, critic_coeff=self.critic_coeff
        )

    def _trained(self, loss_module: Any) -> list[nn.Parameter]:
        return loss_module.own_critic_parameters

    def _wired(
        self, task: RunTask, policy: Any, loss_module: nn.Module, hooks: Mapping[str, Any]
    ) -> Trainer:
        step = TrustRegion(
            self.max_kl,
            damping=self.damping,
            cg_steps=self.cg_steps,
            backtracks=self.backtracks,
        )
        return super()._wired(task, policy, loss_module, {**hooks, "trust_region": step})
