"""REINFORCE with a learned baseline."""

from __future__ import annotations

from typing import ClassVar

from ..run.config import Count, Rate
from .algorithm import algorithm
from .config import CARTPOLE, Settings
from .on_policy import OnPolicy


@algorithm
class REINFORCE(OnPolicy):
    """REINFORCE with a learned baseline, for any actions.

    Williams, 1992, Simple statistical gradient-following algorithms. Every action is reinforced by
    the discounted return that followed it, less the baseline. Where an episode continues past the
    end of a batch, the baseline estimates the rest of its return.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 128
    """steps per environment in each batch, best as many as an episode has"""
    lr: Rate = 1e-2

    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 300_000, "eval_interval": 10_000, **CARTPOLE},
    }
