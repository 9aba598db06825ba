"""`World`: the protocol of batched multi-agent environments, and their groups of agents."""

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
    """The result of one step of all environments.

    Attributes:
        entries: The observations after it, as of `World.reset`; at an episode's end the true final
            ones.
        rewards: By group, float32 ``[num_envs, agents]``; 0 for agents that have left.
        terminated: Whether the episode ended in a terminal state, bool ``[num_envs]``.
        truncated: Whether the episode was truncated, bool ``[num_envs]``.
        agents_terminated: Terminated agents by group, bool ``[num_envs, agents]``; the agents of a
            missing group end with the episode.
        agents_truncated: Likewise, the truncated agents.
        infos: The requested info keys, ``(group, key)``, float32 ``[num_envs, agents]``; NaN for
            agents that did not report one.
    """

    entries: Entries
    rewards: dict[str, torch.Tensor]
    terminated: torch.Tensor
    truncated: torch.Tensor
    agents_terminated: dict[str, torch.Tensor] = field(default_factory=dict)
    agents_truncated: dict[str, torch.Tensor] = field(default_factory=dict)
    infos: Entries = field(default_factory=dict)


class World(AnyWorld, Protocol):
    """A batch of multi-agent environments, whose steps are tensors on one device.

    Later steps do not write to the tensors that were returned. Attributes are those of `AnyWorld`
    and:

    Attributes:
        groups: The agents, by group.
        state_space: The space of ``"state"``, the global state; ``None`` if there is none.
    """

    groups: tuple[AgentGroup, ...]
    state_space: spaces.Space[Any] | None

    def reset(self, envs: torch.Tensor | None = None) -> Entries:
        """Start new episodes.

        Args:
            envs: The environments, bool ``[num_envs]``; ``None`` for all.

        Returns:
            Observations, valid in ``envs`` only: ``(group, "observation")``, or one entry for each
            leaf of a dict observation, ``[num_envs, agents, ...]``; ``(group, "action_mask")`` if
            there are masks; ``(group, "mask")``, which agents are present, bool ``[num_envs,
            agents]``, if agents can leave; and ``"state"`` if there is one.
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
# Keys at the root of a batch, next to the groups.
_RESERVED = {"action", "done", "terminated", "truncated", "reward", "next", "collector", "state"}
_RESERVED |= {"observation", "episode_reward", "step_count", "info"}


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
        """Whether there are action masks."""
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
    """Put agents into groups.

    Args:
        agents: Spaces by agent. A dict observation with the entry ``"action_mask"`` has a mask.
        given: Names of the agents by group; by default agents with equal spaces form a group,
            called ``"agents"`` if it is the only one, else by the common prefix of its agents.
        masked: Agents whose ``info`` holds an action mask; ignored for continuous actions.

    Raises:
        ConfigError: If a group's agents have different spaces, an agent is not in exactly one
            group, or a group's name is reserved.
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
    for group in made:  # raises if there is no tensor form
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
    """Return the info keys; raises ConfigError if one is a batch entry already."""
    observed = {part for group in groups for key in group.keys for part in key}
    return check_info_keys(keys, observed | {"state", "mask", MASK})


class AgentInfos:
    """Collects the agents' infos of one step; NaN for agents that report nothing."""

    def __init__(self, keys: InfoKeys, groups: Sequence[AgentGroup], num_envs: int) -> None:
        self._keys = keys
        self._groups = groups
        self._arrays = {
            (group.name, key): np.full((num_envs, len(group.agents)), np.nan, np.float32)
            for group in groups
            for key in keys
        }

    def write(self, env: int, infos: Mapping[str, Any], is_last: bool, name: str) -> None:
        """Write one environment's infos, by agent.

        Raises:
            ConfigError: If a value is not a number, or no agent reports a key at an episode's end.
        """
        for key in self._keys:
            gave = False
            for group in self._groups:
                for place, agent in enumerate(group.agents):
                    info = infos.get(agent) or {}
                    if key in info:
                        value = number(key, info[key], f"{name} ({agent})")
                        self._arrays[group.name, key][env, place] = value
                        gave = True
            if is_last and not gave:
                every = {k: v for info in infos.values() for k, v in (info or {}).items()}
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
    """A tensor simulator's infos; raises ConfigError if a shape differs or a key is missing."""
    entries: Entries = {}
    for key in keys:
        if not any(key in info for info in infos.values()):
            every = {k: v for info in infos.values() for k, v in info.items()}
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
    """By key the mean over the agents that reported it, ``[num_envs, 1]``; NaN if none did."""
    by_key: dict[str, list[torch.Tensor]] = {}
    for (_, key), value in infos.items():
        by_key.setdefault(key, []).append(value)
    return {key: torch.cat(parts, 1).nanmean(1, True) for key, parts in by_key.items()}


def _column(key: str, info: Mapping[str, Any], num_envs: int, name: str) -> torch.Tensor | None:
    """One agent's value in all environments, float32 ``[num_envs]``; ``None`` if there is none."""
    if key not in info:
        return None
    value = info[key]
    if (
        not isinstance(value, torch.Tensor)
        or value.shape[:1] != (num_envs,)
        or value.numel() != num_envs
    ):
        found = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} is {found:.60}, and not one number for each of "
            f"the {num_envs} environments. Let the scenario report one, or leave the key out."
        )
    return value.reshape(num_envs).float()
