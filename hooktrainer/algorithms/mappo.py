"""Multi-agent PPO with a central critic."""

from __future__ import annotations

from typing import ClassVar

from .agents import AgentsOnPolicy
from .algorithm import algorithm
from .config import Settings

# A step of many environments costs VMAS hardly more than one of few.
_TUNED: Settings = {"vmas/*": {"num_envs": 256, "steps_per_batch": 25}}


@algorithm
class MAPPO(AgentsOnPolicy):
    """Multi-agent proximal policy optimization: every agent acts on its own observation.

    The critic sees what all agents observe, or the state, where the environment gives one. Yu et
    al., 2022, arXiv:2103.01955. For any actions.

    With a memory, the critic reads the features of all agents' memories, and the state. A critic of
    states without a history is biased (Lyu et al., 2022, arXiv:2201.01221). Yu et al. give the
    critic a recurrent network, which would have to be called at every step of acting.
    """

    central_critic: ClassVar[bool] = True
    tuned_for: ClassVar[Settings] = _TUNED


@algorithm
class IPPO(AgentsOnPolicy):
    """Independent proximal policy optimization: an agent's critic sees its own observation alone.

    De Witt et al., 2020, arXiv:2011.09533. For any actions.
    """

    central_critic: ClassVar[bool] = False
    tuned_for: ClassVar[Settings] = {
        **_TUNED,
        # For self-play, which forgets to defend with less entropy.
        "pettingzoo/classic/tictactoe_v3": {
            "total_frames": 120_000,
            "num_envs": 32,
            "steps_per_batch": 32,
            "num_epochs": 8,
            "mini_batch_size": 256,
            "gamma": 1.0,
            "lmbda": 0.9,
            "entropy_coeff": 0.05,
            "self_play_interval": 10_000,
        },
    }
