"""Algorithms: one dataclass each, whose fields configure the run.

    from hooktrainer.algorithms import SAC

    SAC(env="Pendulum-v1", total_frames=20_000, seed=0).train()

The trainer that ``trainer()`` returns can be listed (``trainer.describe()``) and changed
(``trainer.remove_hook``, ``trainer.register_op``).
"""

from __future__ import annotations

from ..base.checks import named
from .a2c import A2C as A2C
from .algorithm import Algorithm, EnvAlgorithm, algorithm
from .bc import BC as BC
from .cql import CQL as CQL
from .dagger import DAgger as DAgger
from .ddpg import DDPG as DDPG
from .dpo import DPO as DPO
from .dqn import DQN as DQN
from .dqn import Rainbow as Rainbow
from .dreamer import Dreamer as Dreamer
from .dsac import DSAC as DSAC
from .dt import DT as DT
from .grpo import GRPO as GRPO
from .iql import IQL as IQL
from .maddpg import MADDPG as MADDPG
from .maddpg import MASAC as MASAC
from .mappo import IPPO as IPPO
from .mappo import MAPPO as MAPPO
from .mbpo import MBPO as MBPO
from .ppo import PPO as PPO
from .pqn import PQN as PQN
from .qmix import QMIX as QMIX
from .qmix import VDN as VDN
from .reinforce import REINFORCE as REINFORCE
from .sac import SAC as SAC
from .seed_runs import SeedResult
from .sft import SFT as SFT
from .sft import OnTexts
from .td3 import TD3 as TD3
from .td3bc import TD3BC as TD3BC
from .text import TextAlgorithm
from .trpo import TRPO as TRPO

_BASES = (Algorithm, EnvAlgorithm, OnTexts, TextAlgorithm)
_ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name(): kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Algorithm) and kind not in _BASES
}

__all__ = ["Algorithm", "EnvAlgorithm", "SeedResult", "TextAlgorithm", "algorithm", "get", "names"]
__all__ += [kind.__name__ for kind in _ALGORITHMS.values()]


def names() -> list[str]:
    """The algorithms there are, as the command line calls them."""
    return list(_ALGORITHMS)


def get(name: str) -> type[Algorithm]:
    """The algorithm called ``name``, in upper or lower case.

    Raises:
        ConfigError: If there is none; it lists the nearest.

    Examples:
        >>> get("sac").__name__
        'SAC'
    """
    return named("algorithm", name.lower(), _ALGORITHMS)
