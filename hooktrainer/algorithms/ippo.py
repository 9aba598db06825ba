"""Independent PPO of several agents."""

from __future__ import annotations

from typing import ClassVar

from .agents_on_policy import AgentsOnPolicy
from .algorithm import algorithm
from .config import Settings


@algorithm
class IPPO(AgentsOnPolicy):
    """Independent proximal policy optimization: each agent for itself, its critic included.

    De Witt et al., 2020, arXiv:2011.09533. For any actions.
    """

    central_critic: ClassVar[bool] = False
    tuned_for: ClassVar[Settings] = {
        # A step of many environments costs VMAS hardly more than one of few.
        "vmas/*": {"num_envs": 256, "steps_per_batch": 25}
    }
