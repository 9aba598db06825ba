"""Algorithms in one line: each function wires hooks and returns a ready `Trainer`.

    trainer = hooktrainer.algorithms.sac("Pendulum-v1", total_frames=20_000, seed=0)
    trainer.train()

They are thin: everything they do could be written out, as the recipes do. What they return can be
listed (``trainer.describe()``), taken apart (``trainer.remove_hook``) and added to.
"""

from __future__ import annotations

from collections.abc import Callable

from ..algorithm_names import ALGORITHMS
from ..errors import ConfigError
from ..loop.trainer import Trainer
from ..words import did_you_mean
from .model_based import mbpo
from .off_policy import ddpg, dqn, sac, td3
from .offline import cql, iql
from .on_policy import a2c, ppo, reinforce
from .options import Options

_ALGORITHMS: dict[str, Callable[..., Trainer]] = {name: globals()[name] for name in ALGORITHMS}

__all__ = [
    "Options",
    "a2c",
    "cql",
    "ddpg",
    "dqn",
    "get",
    "iql",
    "mbpo",
    "names",
    "ppo",
    "reinforce",
    "sac",
    "td3",
]


def names() -> list[str]:
    """The algorithms there are."""
    return list(_ALGORITHMS)


def get(name: str) -> Callable[..., Trainer]:
    """The algorithm called ``name``, in upper or lower case.

    Raises:
        ConfigError: If there is none; it lists the nearest.

    Examples:
        >>> get("SAC").__name__
        'sac'
    """
    algorithm = _ALGORITHMS.get(name.lower())
    if algorithm is None:
        raise ConfigError(
            f"there is no algorithm {name!r}.{did_you_mean(name, _ALGORITHMS)} There are: "
            f"{', '.join(_ALGORITHMS)}."
        )
    return algorithm
