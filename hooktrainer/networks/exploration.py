"""Exploration: when to explore, and the epsilon-greedy policy."""

from __future__ import annotations

from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import interaction_type


def is_deterministic() -> bool:
    """Whether TorchRL's ``set_exploration_type`` asks for anything but random actions here."""
    mode = interaction_type()
    return mode is not None and mode is not InteractionType.RANDOM
