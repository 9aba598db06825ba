"""Groups of agents: their spaces, their entries in a batch, and the format of their actions."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey
from torch import nn

from ..base.space_parts import MASK, Leaf, Path
from ..base.tensordicts import nested
from ..errors import ConfigError
from .action_format import ActionFormat, action_format_of
from .buffers import Kind
from .info import InfoKeys, check_info_keys
from .spaces import RESERVED, ObservationLayout

Space = spaces.Space[Any]
Spaces = Mapping[str, tuple[Space, Space]]
"""By an agent's name, its observation space and its action space."""
Grouping = Mapping[str, Sequence[str]]
"""By a group's name, the names of its agents."""
_RESERVED = {*RESERVED, "observation", "state"}
# Names that the modules which hold networks by group, or parameters, need for themselves.
_RESERVED |= {*dir(nn.ModuleDict()), *dir(nn.ParameterDict())}
_OF_GROUP = {"mask", "learned", "learner"}
"""Entries of a group besides observations."""


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
        return action_format_of(self.action_space, clip=True)


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
        chooses = action_format_of(action).mask_size > 0
        mask_path: Path | None = () if chooses and set(members).intersection(masked) else None
        path: Path = ()
        if isinstance(observation, spaces.Dict) and MASK in observation.spaces:
            mask_path = (MASK,)
            rest = {key: one for key, one in observation.spaces.items() if key != MASK}
            observation = spaces.Dict(rest)
            if set(rest) == {"observation"}:  # PettingZoo's own layout
                observation, path = rest["observation"], ("observation",)
        group = AgentGroup(name, tuple(members), observation, action, mask_path, path)
        if taken := _OF_GROUP.intersection(leaf.key[0] for leaf in group.leaves):
            raise ConfigError(
                f"the agents of {name!r} observe {min(taken)!r}, which batches need for themselves:"
                " rename it in the environment."
            )
        made.append(group)
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
        agent = re.sub("[./]", "_", str(members[0]))
        prefix = re.sub(r"[_-]?\d+$", "", agent) or agent
        name, number = prefix, 2
        while name in named or name in _RESERVED:
            name, number = f"{prefix}_{number}", number + 1
        named[name] = members
    return named


def _check(groups: Grouping, agents: Spaces) -> None:
    problem = ""
    if sorted(a for own in groups.values() for a in own) != sorted(agents) or [] in groups.values():
        problem = f"each of the agents {', '.join(map(str, agents))} has to be in one group"
    for name, members in groups.items():
        if name in _RESERVED or not name or "/" in name or "." in name:
            problem = f"a group cannot be called {name!r}, which batches or modules cannot hold"
        elif not problem and any(agents[agent] != agents[members[0]] for agent in members):
            problem = f"the agents of {name!r} have different spaces"
    if problem:
        raise ConfigError(f"groups={dict(groups)!r}: {problem}.")


def check_agents_info_keys(keys: Any, groups: Sequence[AgentGroup]) -> InfoKeys:
    """Return the info keys; raises ConfigError if one is a batch entry already."""
    observed = {part for group in groups for key in group.keys for part in key}
    return check_info_keys(keys, observed | {"state", "mask", MASK})


def space_of(
    groups: Sequence[AgentGroup], state_shape: tuple[int, ...] | None, leave: bool
) -> spaces.Dict:
    """The space of all agents' observations: by group a Dict, whose parts are ``[agents, ...]``.

    With ``"action_mask"`` where there are masks, and ``"mask"``, which agents are present, if they
    may leave. ``"state"`` is the global state, if there is one.
    """
    space: dict[NestedKey, Space] = {}
    for group in groups:
        name, agents = group.name, len(group.agents)
        for key, leaf in zip(group.keys, group.leaves, strict=True):
            space[key] = _box((agents, *leaf.shape), leaf.dtype)
        if group.has_mask:
            space[name, MASK] = _box((agents, group.action_format.mask_size), np.dtype(bool))
        if leave:
            space[name, "mask"] = _box((agents,), np.dtype(bool))
    if state_shape is not None:
        space["state"] = _box(state_shape, np.dtype(np.float32))
    return _dict_of(nested(space))


def _dict_of(parts: Mapping[str, Any]) -> spaces.Dict:
    return spaces.Dict(
        {key: _dict_of(part) if isinstance(part, dict) else part for key, part in parts.items()}
    )


def _box(shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    kind: Any = dtype.type
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, kind)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, kind)
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, kind)


def entries_of(groups: Sequence[AgentGroup], info_keys: Sequence[str]) -> dict[NestedKey, Kind]:
    """The entries in ``"next"``: those of the agents of each group, and means over all agents."""
    number, flag = np.dtype(np.float32), np.dtype(bool)
    kinds: dict[str, Any] = dict.fromkeys(("reward", "episode_reward", *info_keys), number)
    kinds |= dict.fromkeys(("terminated", "truncated", "done"), flag)
    entries: dict[NestedKey, Kind] = {
        (group.name, key): ((len(group.agents),), kind)
        for group in groups
        for key, kind in kinds.items()
    }
    return {**entries, **dict.fromkeys(("episode_reward", *info_keys), ((), number))}


class GroupsFormat(ActionFormat):
    """The form of the actions of several agents: a dict by group, ``[num_envs, agents, ...]``."""

    def __init__(self, groups: Sequence[AgentGroup]) -> None:
        self._groups = groups
        self.space = spaces.Dict({group.name: group.action_space for group in groups})
        self.keys = tuple((group.name, "action") for group in groups)
        self._numbers = [len(one.agents) * one.action_format.numbers for one in groups]
        self.numbers = sum(self._numbers)
        self.mask_size = 0  # of the actions of all agents together

    def find(self, outputs: Mapping[NestedKey, Any]) -> dict[str, Any]:
        return {group.name: outputs[group.name, "action"] for group in self._groups}

    def check(self, actions: Mapping[str, Any], num_envs: int) -> None:
        for group in self._groups:
            action, agents = actions[group.name], len(group.agents)
            form, wanted = "", [num_envs, agents, *group.action_format.shape]
            fits = list(action.shape) == wanted
            if group.action_format._is_discrete:
                form, fits = "indices ", fits and "int" in str(action.dtype)
            if not fits:
                raise ConfigError(
                    f"The policy's {(group.name, 'action')} is {action.dtype} "
                    f"{list(action.shape)}; {num_envs} environments with {agents} agents whose "
                    f"actions are {group.action_space} need {form}{wanted}."
                )

    def each(self, actions: Mapping[str, Any]) -> list[Any]:
        """For each environment a dict by group, still in the policy's form."""
        by_group = zip(*actions.values(), strict=True)
        return [dict(zip(actions, one, strict=True)) for one in by_group]

    def sample(
        self, uniform: torch.Tensor, observation: Mapping[NestedKey, torch.Tensor]
    ) -> dict[NestedKey, torch.Tensor]:
        drawn: dict[NestedKey, torch.Tensor] = {}
        by_group = torch.split(uniform, self._numbers, -1)
        for group, numbers in zip(self._groups, by_group, strict=True):
            shape = (len(uniform), len(group.agents))
            mask = observation.get((group.name, MASK))
            flat = None if mask is None else mask.flatten(0, 1)
            action = group.action_format.draw(numbers.reshape(math.prod(shape), -1), flat)
            drawn[group.name, "action"] = action.view(*shape, *action.shape[1:])
        return drawn
