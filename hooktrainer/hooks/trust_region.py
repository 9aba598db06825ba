"""`TrustRegion`: one natural gradient step of the policy for each batch."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from tensordict import TensorDictBase

from ..base.checks import check_count, check_positive
from ..errors import ConfigError
from ..loop.hook import LATE
from ..loop.loop import Loop
from ..optim.trust_region import trust_region_step
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class TrustRegion(AveragingHook):
    """Takes a trust-region step of the policy on each whole batch, before the optimizer steps.

    Schulman et al., 2015, arXiv:1502.05477. The loss module is a
    `hooktrainer.objectives.TRPOLoss`, or another with ``actor_network`` and ``policy_terms``. The
    trainer's optimizer trains the value alone: pass it ``loss_module.own_critic_parameters``.

    It logs the divergence of each step as ``train/kl``, the decrease of the surrogate loss as
    ``train/improvement``, and the length of the step as ``train/step_fraction``, 0 if there was
    none within the limit.

    Args:
        max_kl: Limit of the mean divergence between the policies before and after a step, in nats.
        damping: Multiple of the identity added to the Fisher information.
        cg_steps: Steps of conjugate gradient, each one product with the Fisher information.
        backtracks: Lengths that the line search tries.
        shrink: Factor from one length to the next.

    Raises:
        ConfigError: If a number is out of range, or the loss has no ``policy_terms``.
    """

    at = "batch_process"
    priority = LATE  # after all that writes advantages, rewards or further terms
    phase = "optimize"

    max_kl: float = 0.01
    _: KW_ONLY
    damping: float = 0.1
    cg_steps: int = 15
    backtracks: int = 10
    shrink: float = 0.8

    def __post_init__(self) -> None:
        check_positive("TrustRegion: max_kl", self.max_kl)
        check_count("TrustRegion: cg_steps", self.cg_steps)
        check_count("TrustRegion: backtracks", self.backtracks)
        if not (0 < self.shrink < 1 and self.damping >= 0):
            raise ConfigError(
                f"TrustRegion(damping={self.damping!r}, shrink={self.shrink!r}): pass a damping of "
                "0 or more, and a factor between 0 and 1."
            )

    def __call__(self, batch: TensorDictBase) -> None:
        """Take the step.

        Raises:
            NonFiniteError: If the gradient is not finite; the parameters are unchanged.
        """
        loss: Any = self.trainer.loss_module
        step = trust_region_step(
            [p for p in loss.actor_network.parameters() if p.requires_grad],
            loss.policy_terms(batch),
            max_kl=self.max_kl,
            damping=self.damping,
            cg_steps=self.cg_steps,
            backtracks=self.backtracks,
            shrink=self.shrink,
            average=self.average_over_ranks,
        )
        self.trainer.log(
            {
                "train/kl": step.kl,
                "train/improvement": step.improvement,
                "train/step_fraction": step.fraction,
            }
        )

    def on_train_start(self, trainer: Loop) -> None:
        """Check that the loss has what a step needs."""
        loss = trainer.loss_module
        if not hasattr(loss, "policy_terms"):
            raise ConfigError(
                f"TrustRegion: {type(loss).__name__} has no policy_terms: use TRPOLoss."
            )
