"""`World`: a batch of environments of several agents, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from gymnasium import spaces
from tensordict import NestedKey

from ..any_world import AnyWorld
from .groups import AgentGroup

Entries = dict[NestedKey, torch.Tensor]


@dataclass
class WorldStep:
    """What a step of all environments gives.

    Attributes:
        entries: What is observed after it; see `World.reset`. Where an episode ends, the true final
            observations.
        rewards: By group, float32 ``[num_envs, agents]``; 0 for agents that have left.
        terminated: Whether the episode ended in a terminal state, bool ``[num_envs]``.
        truncated: Whether it was broken off, likewise.
        agents_terminated: By group, which agents have reached a terminal state, bool ``[num_envs,
            agents]``; of a group that is left out, all agents end with the episode.
        agents_truncated: Likewise, which were broken off.
        infos: What agents said of the keys that the world was asked for, ``(group, key)``, float32
            ``[num_envs, agents]``; NaN of those who said nothing.
    """

    entries: Entries
    rewards: dict[str, torch.Tensor]
    terminated: torch.Tensor
    truncated: torch.Tensor
    agents_terminated: dict[str, torch.Tensor] = field(default_factory=dict)
    agents_truncated: dict[str, torch.Tensor] = field(default_factory=dict)
    infos: Entries = field(default_factory=dict)


class World(AnyWorld, Protocol):
    """A batch of environments of several agents, whose steps are tensors on one device.

    Tensors that it returns stay as they are: a later step writes into others.

    Attributes:
        name: What it is called in messages.
        num_envs: How many environments.
        groups: The agents, by group.
        device: Where its tensors are.
        state_space: The space of ``"state"``, the state of a whole environment; ``None`` if there
            is none.
        shares: Whether the episodes of an environment depend on its index and the seed alone, so
            that processes can share the environments.
        episodes: For each environment the index of its running episode, -1 before the first; where
            they are not counted, -1 always.
        lost: Why its running episodes cannot be saved; ``None`` if they can.
    """

    groups: tuple[AgentGroup, ...]
    state_space: spaces.Space[Any] | None

    def reset(self, envs: torch.Tensor | None = None) -> Entries:
        """Begin new episodes.

        Args:
            envs: Where, bool ``[num_envs]``; ``None`` for all.

        Returns:
            What is observed, of which only what is in ``envs`` counts: ``(group, "observation")``,
            or one entry for each leaf of a dict observation, ``[num_envs, agents, ...]``; ``(group,
            "action_mask")`` where there are masks; ``(group, "mask")``, which agents are there,
            bool ``[num_envs, agents]``, where agents can leave; and ``"state"`` where there is one.
        """

    def step(self, actions: Mapping[str, torch.Tensor]) -> WorldStep:
        """Step all environments.

        Args:
            actions: By group, ``[num_envs, agents, ...]``.
        """
