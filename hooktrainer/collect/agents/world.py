"""`AgentsWorld`: batched environments of several agents, and their groups of agents."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey

from ...base.space_parts import MASK, Leaf, Path
from ...errors import ConfigError
from ..action_format import ActionFormat
from ..info import InfoKeys, check_info_keys
from ..spaces import RESERVED, ObservationLayout
from ..worlds.functional_world import select
from ..worlds.tensor_world import Outcome

Entries = dict[NestedKey, torch.Tensor]
Advance = tuple[Entries, torch.Tensor, torch.Tensor, Entries]
"""The result of `AgentsWorld.advance`."""


class AgentsWorld(ABC):
    """Environments of several agents as a `TensorWorld`: what agents have lies under their group.

    Observations are ``(group, "observation")``, or one entry for each leaf of a dict observation,
    ``[num_envs, agents, ...]``; ``(group, "action_mask")`` if there are masks; ``(group, "mask")``,
    which agents are present, bool ``[num_envs, agents]``, if agents can leave; and ``"state"`` if
    there is a global state. Actions are a dict by group, ``[num_envs, agents, ...]``. The reward is
    the mean over all agents; ``Outcome.entries`` hold those of the agents.

    Attributes:
        groups: The agents, by group.
        state_space: The space of the global state; ``None`` if there is none.
        agents_leave: Whether agents may leave before the episode ends.
    """

    name: str
    num_envs: int
    device: torch.device
    shares: bool
    episodes: list[int]
    lost: str | None = None
    frame_skip = 1
    groups: tuple[AgentGroup, ...]
    state_space: spaces.Space[Any] | None = None
    agents_leave = False
    _returns: Mapping[str, torch.Tensor] = MappingProxyType({})

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed all environments and start at their first episodes."""

    @abstractmethod
    def begin(self, envs: torch.Tensor | None = None) -> Entries:
        """Start episodes in ``envs``, bool ``[num_envs]``, or in all; return the observations.

        Those of the other environments are not valid.
        """

    @abstractmethod
    def advance(self, actions: Mapping[str, torch.Tensor]) -> Advance:
        """Step all environments, and reset none.

        Returns:
            The observations, at an episode's end the true final ones; whether the episode ended in
            a terminal state, and whether it was truncated, bool ``[num_envs]``; and by
            ``(group, name)``, ``[num_envs, agents]``: ``"reward"``, float32, 0 for agents that have
            left; ``"terminated"`` and ``"truncated"``, bool, if agents may end before the episode;
            and info keys, float32, NaN for agents that did not report one.
        """

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """The running episodes and the random state, except what is ``lost``."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> bool:
        """Restore what `save` returned; return whether running episodes continue."""

    @abstractmethod
    def close(self) -> None:
        """Close all environments. Safe to call again."""

    def reset(self) -> Entries:
        self._returns = {
            group.name: torch.zeros(self.num_envs, len(group.agents), device=self.device)
            for group in self.groups
        }
        return self.begin()

    def step(self, actions: Mapping[str, torch.Tensor]) -> Outcome:
        final, terminated, truncated, entries = self.advance(actions)
        rewards = {group.name: entries.pop((group.name, "reward")) for group in self.groups}
        entries |= _mean_over_agents(entries)
        returns = {name: self._returns[name] + reward for name, reward in rewards.items()}
        for name, reward in rewards.items():
            for key, of_all in ("terminated", terminated), ("truncated", truncated):
                entries.setdefault((name, key), of_all.unsqueeze(-1).expand_as(reward))
            entries[name, "done"] = entries[name, "terminated"] | entries[name, "truncated"]
            entries[name, "reward"], entries[name, "episode_reward"] = reward, returns[name]
        entries["episode_reward"] = torch.cat([*returns.values()], 1).mean(1)
        done, following = terminated | truncated, final
        if bool(done.any()):
            following = select(done, self.begin(done), final)
            returns = {name: x.masked_fill(done.unsqueeze(-1), 0.0) for name, x in returns.items()}
        self._returns = returns
        reward = torch.cat([*rewards.values()], 1).mean(1)
        return Outcome(following, reward, terminated, truncated, final, entries=entries)

    def state_dict(self) -> dict[str, Any]:
        return {"returns": dict(self._returns), "envs": self.save()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        returns = state["returns"].items()
        self._returns = {name: value.to(self.device) for name, value in returns}
        return self.restore(state["envs"])


def _mean_over_agents(entries: Entries) -> Entries:
    """By info key the mean over the agents that reported it, ``[num_envs]``; NaN if none did."""
    by_key: dict[str, list[torch.Tensor]] = {}
    for (_, key), value in entries.items():
        if value.is_floating_point():
            by_key.setdefault(key, []).append(value)
    return {key: torch.cat(parts, 1).nanmean(1) for key, parts in by_key.items()}


Space = spaces.Space[Any]
Spaces = Mapping[str, tuple[Space, Space]]
"""By an agent's name, its observation space and its action space."""
Grouping = Mapping[str, Sequence[str]]
"""By a group's name, the names of its agents."""
_RESERVED = {*RESERVED, "observation", "state"}


@dataclass(frozen=True)
class AgentGroup:
    """Agents with equal spaces.

    Attributes:
        name: The key of its entries in a batch.
        agents: The names of its agents, in their order along the agents dimension.
        observation_space: The observation space of one agent, without an action mask.
        action_space: The action space of one agent.
        mask_path: Keys that lead to the action mask in an agent's observation; empty if the mask is
            in its ``info``; ``None`` if there is none.
        path: Keys that lead to ``observation_space`` in an agent's observation.
    """

    name: str
    agents: tuple[str, ...]
    observation_space: Space
    action_space: Space
    mask_path: Path | None = None
    path: Path = ()

    @property
    def has_mask(self) -> bool:
        return self.mask_path is not None

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays of an observation, with keys within the group."""
        return ObservationLayout(self.observation_space).leaves

    @cached_property
    def keys(self) -> tuple[NestedKey, ...]:
        """The keys of these arrays in a batch."""
        return tuple((self.name, *leaf.key) for leaf in self.leaves)

    @cached_property
    def action_format(self) -> ActionFormat:
        """The format in which the policy writes an action."""
        return ActionFormat(self.action_space)


def group_agents(
    agents: Spaces, given: Grouping | None = None, masked: Collection[str] = ()
) -> tuple[AgentGroup, ...]:
    """Put agents into groups, by default those with equal spaces.

    A single group is called ``"agents"``, several by the common prefix of their agents. Masks are
    in a dict observation's ``"action_mask"``, or in the ``info`` of the agents ``masked``.
    """
    groups = _by_spaces(agents) if given is None else {k: list(v) for k, v in given.items()}
    _check(groups, agents)
    made = []
    for name, members in groups.items():
        observation, action = agents[members[0]]
        chooses = ActionFormat(action).mask_size > 0
        mask_path: Path | None = () if chooses and set(members).intersection(masked) else None
        path: Path = ()
        if isinstance(observation, spaces.Dict) and MASK in observation.spaces:
            mask_path = (MASK,)
            rest = {key: one for key, one in observation.spaces.items() if key != MASK}
            observation = spaces.Dict(rest)
            if set(rest) == {"observation"}:  # PettingZoo's own layout
                observation, path = rest["observation"], ("observation",)
        made.append(AgentGroup(name, tuple(members), observation, action, mask_path, path))
    return tuple(made)


def _by_spaces(agents: Spaces) -> dict[str, list[str]]:
    found: list[list[str]] = []
    for agent, own in agents.items():
        same = next((members for members in found if agents[members[0]] == own), None)
        found.append([agent]) if same is None else same.append(agent)
    if len(found) == 1:
        return {"agents": found[0]}
    named: dict[str, list[str]] = {}
    for members in found:
        prefix = re.sub(r"[_-]?\d+$", "", members[0]) or members[0]
        name, number = prefix, 2
        while name in named or name in _RESERVED:
            name, number = f"{prefix}_{number}", number + 1
        named[name] = members
    return named


def _check(groups: Grouping, agents: Spaces) -> None:
    problem = ""
    if sorted(a for own in groups.values() for a in own) != sorted(agents) or [] in groups.values():
        problem = f"each of the agents {', '.join(agents)} has to be in one group"
    for name, members in groups.items():
        if name in _RESERVED or not name or "/" in name:
            problem = f"a group cannot be called {name!r}, a name that batches need for themselves"
        elif not problem and any(agents[agent] != agents[members[0]] for agent in members):
            problem = f"the agents of {name!r} have different spaces"
    if problem:
        raise ConfigError(f"groups={dict(groups)!r}: {problem}.")


def check_agents_info_keys(keys: Any, groups: Sequence[AgentGroup]) -> InfoKeys:
    """Return the info keys; raises ConfigError if one is a batch entry already."""
    observed = {part for group in groups for key in group.keys for part in key}
    return check_info_keys(keys, observed | {"state", "mask", MASK})


def agent_leaves(
    groups: Sequence[AgentGroup], state_space: Space | None, leave: bool
) -> tuple[Leaf, ...]:
    """The arrays that an observation consists of; with masks of the agents if these may leave."""
    flag, leaves = np.dtype(bool), []
    for group in groups:
        agents = len(group.agents)
        for leaf in group.leaves:
            leaves.append(Leaf((group.name, *leaf.key), (), (agents, *leaf.shape), leaf.dtype))
        if group.has_mask:
            shape = (agents, group.action_format.mask_size)
            leaves.append(Leaf((group.name, MASK), (), shape, flag))
        if leave:
            leaves.append(Leaf((group.name, "mask"), (), (agents,), flag))
    if state_space is not None:
        leaves.append(Leaf(("state",), (), tuple(state_space.shape or ()), np.dtype(np.float32)))
    return tuple(leaves)
