"""`World`: a batch of environments of several agents, as tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey

from ...base.space_parts import MASK, Leaf, Path
from ...errors import ConfigError
from ..action_format import ActionFormat
from ..info import InfoKeys, check_info_keys, missing, number
from ..spaces import ObservationLayout
from ..worlds.tensor_world import AnyWorld

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


Space = spaces.Space[Any]
Spaces = Mapping[str, tuple[Space, Space]]
"""By an agent's name, its observation space and its action space."""
Grouping = Mapping[str, Sequence[str]]
"""By a group's name, the names of its agents."""
# What the root of a batch needs for itself; groups are its neighbours.
_RESERVED = {"action", "done", "terminated", "truncated", "reward", "next", "collector", "state"}


_RESERVED |= {"observation", "episode_reward", "step_count", "info"}


@dataclass(frozen=True)
class AgentGroup:
    """Agents that have the same spaces.

    Attributes:
        name: Its name, the key of its entries in a batch.
        agents: The names of its agents, in their order along the dimension of agents.
        observation_space: The observations of one agent, without an action mask.
        action_space: The actions of one agent.
        mask_path: Where the environment says at each step which discrete actions are allowed: the
            keys that lead there in an agent's observation, none in its ``info``; ``None`` if
            nowhere.
        path: The keys that lead in it to what ``observation_space`` is of.
    """

    name: str
    agents: tuple[str, ...]
    observation_space: Space
    action_space: Space
    mask_path: Path | None = None
    path: Path = ()

    @property
    def has_mask(self) -> bool:
        """Whether there are action masks."""
        return self.mask_path is not None

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays of which an observation consists; their keys are those within the group."""
        return ObservationLayout(self.observation_space).leaves

    @cached_property
    def keys(self) -> tuple[NestedKey, ...]:
        """The keys of these arrays in a batch."""
        return tuple((self.name, *leaf.key) for leaf in self.leaves)

    @cached_property
    def action_format(self) -> ActionFormat:
        """What an action looks like as the policy writes it."""
        return ActionFormat(self.action_space)


def group_agents(
    agents: Spaces, given: Grouping | None = None, masked: Collection[str] = ()
) -> tuple[AgentGroup, ...]:
    """Put agents into groups.

    Args:
        agents: Every agent's spaces. A dict observation with the entry ``"action_mask"`` has one.
        given: The groups; by default agents with equal spaces are one. A single group is called
            ``"agents"``, several are called after what the names of their agents begin with.
        masked: Agents whose ``info`` holds an action mask. Where there is nothing to choose from,
            it is left alone.

    Raises:
        ConfigError: If a group holds agents with different spaces, an agent is in no group or in
            two, or a group has an impossible name.
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
    for group in made:  # refused here if they have no tensor form
        group.leaves, group.action_format  # noqa: B018
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
    placed = [agent for members in groups.values() for agent in members]
    for name, members in groups.items():
        if name in _RESERVED or not name or "/" in name:
            raise ConfigError(
                f"groups={dict(groups)!r}: a group cannot be called {name!r}, a name that batches "
                "need for themselves; give it another."
            )
        if not members:
            raise ConfigError(f"groups={dict(groups)!r}: the group {name!r} has no agents.")
    unknown = [agent for agent in placed if agent not in agents]
    missing = [agent for agent in agents if agent not in placed]
    twice = sorted({agent for agent in placed if placed.count(agent) > 1})
    for wrong, why in ((unknown, "no agents"), (missing, "in no group"), (twice, "in two groups")):
        if wrong:
            raise ConfigError(
                f"groups={dict(groups)!r}: {', '.join(wrong)}: {why}. The agents are "
                f"{', '.join(agents)}; put each into one group."
            )
    for name, members in groups.items():
        for agent in members[1:]:
            for what, one, other in zip(
                ("observations", "actions"), agents[members[0]], agents[agent], strict=True
            ):
                if one != other:
                    raise ConfigError(
                        f"the group {name!r} holds {members[0]}, whose {what} are {one}, and "
                        f"{agent}, whose {what} are {other}: agents of one group need equal "
                        "spaces. Put them into groups of their own, or pad their spaces in the "
                        "environment."
                    )


def check_agents_info_keys(keys: Any, groups: Sequence[AgentGroup]) -> InfoKeys:
    """Return the keys, or refuse those that are entries of a batch already.

    Args:
        keys: What the user gave.
        groups: The agents.

    Raises:
        ConfigError: If one is taken, or they are not different strings.
    """
    observed = {part for group in groups for key in group.keys for part in key}
    return check_info_keys(keys, observed | {"state", "mask", MASK})


class AgentInfos:
    """What agents said in one step of all environments; NaN of those who said nothing.

    Args:
        keys: Of their infos.
        groups: The agents.
        num_envs: How many environments.
    """

    def __init__(self, keys: InfoKeys, groups: Sequence[AgentGroup], num_envs: int) -> None:
        self._keys = keys
        self._groups = groups
        self._arrays = {
            (group.name, key): np.full((num_envs, len(group.agents)), np.nan, np.float32)
            for group in groups
            for key in keys
        }

    def write(self, env: int, infos: Mapping[str, Any], is_last: bool, name: str) -> None:
        """Write what was said in one environment.

        Args:
            env: Its index.
            infos: By agent, what it said.
            is_last: Whether the episode ended with it: then one agent at least gives every key.
            name: What the environment is called.

        Raises:
            ConfigError: If something is no number, or is not there at an episode's end.
        """
        for key in self._keys:
            gave = False
            for group in self._groups:
                for place, agent in enumerate(group.agents):
                    said = infos.get(agent) or {}
                    if key in said:
                        value = number(key, said[key], f"{name} ({agent})")
                        self._arrays[group.name, key][env, place] = value
                        gave = True
            if is_last and not gave:
                every = {k: v for said in infos.values() for k, v in (said or {}).items()}
                raise ConfigError(missing(key, every, f"all agents of {name}"))

    def entries(self, device: torch.device) -> Entries:
        """``(group, key)``, float32 ``[num_envs, agents]``."""
        return {key: torch.from_numpy(array).to(device) for key, array in self._arrays.items()}


def infos_of_tensors(
    keys: InfoKeys,
    groups: Sequence[AgentGroup],
    infos: Mapping[str, Mapping[str, Any]],
    num_envs: int,
    device: torch.device,
    name: str,
) -> Entries:
    """The same of a simulator whose agents say tensors ``[num_envs]`` or ``[num_envs, 1]``.

    Raises:
        ConfigError: If they are others, or no agent says one.
    """
    entries: Entries = {}
    for key in keys:
        if not any(key in said for said in infos.values()):
            every = {k: v for said in infos.values() for k, v in said.items()}
            raise ConfigError(missing(key, every, f"all agents of {name}"))
        for group in groups:
            columns = [
                _column(key, infos[agent], num_envs, f"{name} ({agent})") for agent in group.agents
            ]
            nothing = torch.full((num_envs,), torch.nan, device=device)
            entries[group.name, key] = torch.stack(
                [nothing if column is None else column for column in columns], 1
            )
    return entries


def mean_over_agents(infos: Entries) -> Entries:
    """By key the mean over all agents that said something, ``[num_envs, 1]``; NaN if none did."""
    by_key: dict[str, list[torch.Tensor]] = {}
    for (_, key), value in infos.items():
        by_key.setdefault(key, []).append(value)
    return {key: torch.cat(parts, 1).nanmean(1, True) for key, parts in by_key.items()}


def _column(key: str, said: Mapping[str, Any], num_envs: int, name: str) -> torch.Tensor | None:
    """What one agent said in all environments, float32 ``[num_envs]``; ``None`` if nothing."""
    if key not in said:
        return None
    value = said[key]
    if (
        not isinstance(value, torch.Tensor)
        or value.shape[:1] != (num_envs,)
        or value.numel() != num_envs
    ):
        found = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} is {found:.60}, and not one number for each of "
            f"the {num_envs} environments. Let the scenario say one, or leave the key out."
        )
    return value.reshape(num_envs).float()
