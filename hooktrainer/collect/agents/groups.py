"""Groups: agents with the same spaces, which are one dimension of a tensor."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gymnasium import spaces
from tensordict import NestedKey

from ...base.space_parts import MASK, Leaf, Path
from ...errors import ConfigError
from ..action_format import ActionFormat
from ..spaces import ObservationLayout

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
