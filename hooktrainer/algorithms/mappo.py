"""Multi-agent PPO with a central critic."""

from __future__ import annotations

from typing import ClassVar

from .agents_on_policy import AgentsOnPolicy
from .algorithm import algorithm
from .config import Settings


@algorithm
class MAPPO(AgentsOnPolicy):
    """Multi-agent proximal policy optimization: every agent acts by what it observes itself.

    The critic sees what all agents observe, or the state, where the environment gives one. Yu et
    al., 2022, arXiv:2103.01955. For any actions.
    """

    central_critic: ClassVar[bool] = True
    tuned_for: ClassVar[Settings] = {
        # A step of many environments costs VMAS hardly more than one of few.
        "vmas/*": {"num_envs": 256, "steps_per_batch": 25}
    }
