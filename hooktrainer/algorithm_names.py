"""The algorithms there are, by name: the command line finds them without importing PyTorch."""

from __future__ import annotations

from typing import Final

ALGORITHMS: Final = (
    "a2c",
    "cql",
    "ddpg",
    "dqn",
    "iql",
    "mbpo",
    "ppo",
    "reinforce",
    "sac",
    "td3",
)
"""Functions of `hooktrainer.algorithms`."""
