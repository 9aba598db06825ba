"""`AnyWorld`: what a batch of environments made of tensors has, of one agent or of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch


class AnyWorld(Protocol):
    """A batch of environments whose steps are tensors on one device.

    Attributes:
        name: What it is called in messages.
        num_envs: How many environments.
        device: Where its tensors are.
        shares: Whether the episodes of an environment depend on the seed, its index and the number
            of its episode alone, so that processes can share the environments.
        episodes: For each environment the index of its running episode, -1 before the first; where
            they are not counted, -1 always.
        lost: Why running episodes cannot be saved; ``None`` if they can.
    """

    name: str
    num_envs: int
    device: torch.device
    shares: bool
    episodes: list[int]
    lost: str | None

    def seed(self, seed: int) -> None:
        """Start over: the episodes that begin from now on are those of this seed."""

    def state_dict(self) -> dict[str, Any]:
        """The running episodes and the random state; nothing of what is ``lost``."""

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore what `state_dict` returned; the seed was set before.

        Returns:
            Whether the running episodes go on; if not, new ones have to begin.

        Raises:
            StateMismatchError: If it is the state of another world.
        """

    def close(self) -> None:
        """Close all environments; safe to call again."""
