"""Advantage actor-critic."""

from __future__ import annotations

from typing import Annotated, ClassVar

from ..run.config import Between, Count, Fraction, Rate
from .algorithm import algorithm
from .config import CARTPOLE, Settings
from .on_policy import OnPolicy


@algorithm
class A2C(OnPolicy):
    """Advantage actor-critic, for any actions.

    Mnih et al., 2016, arXiv:1602.01783, its synchronous form: one optimizer step a batch. The
    defaults solve CartPole.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 16
    lr: Rate = 2e-3
    lmbda: Annotated[Fraction, Between(0.8, 1.0)] = 0.95
    """lambda of generalized advantage estimation; 1 for plain n-step returns"""
    normalize_advantage: bool = True
    """whether the advantages of each batch get mean 0 and deviation 1"""

    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 300_000, "eval_interval": 10_000, **CARTPOLE},
    }
