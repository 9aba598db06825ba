"""What is recorded of an environment of several agents while their policies are trained."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key
from torch import Tensor

from ..base.space_parts import MASK
from ..collect.agents import AgentGroup, is_several, make_world
from ..collect.agents.groups import Grouping
from ..collect.agents.world import Entries
from ..collect.spaces import ObservationLayout
from ..errors import ConfigError
from .agents_environment import AgentsEnvironment
from .agents_interface import PRESENCE, AgentsInterface, GroupInput, SavedGroup
from .describe_environment import (
    EXAMPLES,
    Described,
    action_of,
    describe_environment,
    draw_examples,
    observation_of,
    place_of,
)
from .interface import Observation


@dataclasses.dataclass(frozen=True)
class DescribedAgents:
    """An environment of several agents, looked at once; as `Described`.

    Attributes:
        environment: How to make it again.
        groups: The agents.
        entries: What they observe, by the key of a batch.
        examples: Made-up observations, ``[12, agents, ...]`` for each.
    """

    environment: AgentsEnvironment
    groups: tuple[AgentGroup, ...]
    entries: dict[NestedKey, GroupInput]
    examples: list[Tensor]

    @property
    def keys(self) -> list[NestedKey]:
        """What is observed, as a policy calls it."""
        return list(self.entries)

    @property
    def actions(self) -> list[NestedKey]:
        """What a policy writes its actions to."""
        return [(group.name, "action") for group in self.groups]

    def interface(self, reads: Sequence[NestedKey]) -> AgentsInterface:
        """Return what policies that read these keys take and give."""
        groups = tuple(
            SavedGroup(one.name, one.agents, action_of(one.action_space, True, one.action_space))
            for one in self.groups
        )
        return AgentsInterface(groups, tuple(self.entries[key] for key in reads))

    def check(self, actions: Sequence[Tensor]) -> None:
        """Refuse the policies' actions for the examples that the environment does not take.

        Raises:
            ConfigError: If they have another shape or type.
        """
        for group, action in zip(self.groups, actions, strict=True):
            wanted = (EXAMPLES, len(group.agents))
            if tuple(action.shape[:2]) != wanted:
                raise ConfigError(
                    f"the actions of {group.name!r} have shape {list(action.shape)}; they have to "
                    f"begin with the batch and the agents, {list(wanted)} here."
                )
            each = action.flatten(0, 1)
            group.action_format.check(each.numpy(), len(each))


def describe(
    env: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    categorical_actions: bool = True,
    groups: Grouping | None = None,
) -> Described | DescribedAgents:
    """Look at an environment of one agent or of several: one is built, reset and closed.

    Args:
        env: As for `VectorCollector`, or as for `AgentsCollector`.
        env_kwargs: Keyword arguments of the environment.
        categorical_actions: Whether discrete actions are indices, as those of several agents are.
        groups: Of several agents, the groups; as for `AgentsCollector`.

    Raises:
        ConfigError: If the environment cannot be built, or its spaces have no tensor form.
    """
    if is_several(env) or _makes_several(env, env_kwargs):
        return describe_agents(env, env_kwargs, groups)
    return describe_environment(env, env_kwargs, categorical_actions=categorical_actions)


def describe_agents(
    env: Any, env_kwargs: Mapping[str, Any] | None = None, groups: Grouping | None = None
) -> DescribedAgents:
    """Look at an environment of several agents: one is built, reset and closed.

    Args:
        env: As for `AgentsCollector`.
        env_kwargs: Likewise.
        groups: Likewise.

    Raises:
        ConfigError: If it cannot be built.
    """
    world = make_world(env, 1, env_kwargs=env_kwargs, groups=groups)
    try:
        seen = world.reset()
    finally:
        world.close()
    entries: dict[NestedKey, GroupInput] = {}
    examples: list[Tensor] = []
    for group in world.groups:
        for entry, example in _entries(group, seen):
            entries[unravel_key((group.name, *entry.keys))] = entry
            examples.append(example)
    if world.state_space is not None:
        entry, example = _state(world.state_space)
        entries["state"] = entry
        examples.append(example)
    return DescribedAgents(_recorded(env, env_kwargs or {}), world.groups, entries, examples)


def _makes_several(env: Any, env_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a function makes a parallel environment of PettingZoo."""
    if not callable(env):
        return False
    if isinstance(env, type):
        return hasattr(env, "possible_agents")
    made = env(**(env_kwargs or {}))
    made.close()
    return hasattr(made, "possible_agents")


def _entries(group: AgentGroup, seen: Entries) -> list[tuple[GroupInput, Tensor]]:
    """What the agents of a group observe, with examples ``[12, agents, ...]``."""
    agents = len(group.agents)
    layout = ObservationLayout(group.observation_space)
    drawn = draw_examples(group.observation_space, layout, {}, EXAMPLES * agents)
    found = []
    for leaf, array in zip(layout.leaves, drawn, strict=True):
        entry = GroupInput(group.name, leaf.key, observation_of(leaf, group.path))
        shape = (EXAMPLES, agents, *leaf.shape)
        found.append((entry, torch.from_numpy(array.reshape(shape))))
    for name, path in ((MASK, group.mask_path or ()), (PRESENCE, ())):
        if (value := seen.get((group.name, name))) is not None:
            part = Observation(name, path, tuple(value.shape[2:]), "bool")
            found.append(
                (GroupInput(group.name, (name,), part), value.cpu().repeat_interleave(EXAMPLES, 0))
            )
    return found


def _state(space: spaces.Space[Any]) -> tuple[GroupInput, Tensor]:
    """The state of the whole, with examples ``[12, ...]``."""
    layout = ObservationLayout(space)
    (drawn,) = draw_examples(space, layout, {}, EXAMPLES)
    part = dataclasses.replace(observation_of(layout.leaves[0], ()), key="state")
    return GroupInput(None, ("state",), part), torch.from_numpy(drawn)


def _recorded(env: Any, env_kwargs: Mapping[str, Any]) -> AgentsEnvironment:
    """How to make it again: by its id, or as a class or function that others can import."""
    given = dict(env_kwargs)
    if isinstance(env, functools.partial) and not env.args:
        env, given = env.func, {**env.keywords, **given}
    try:
        kwargs = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError) as error:
        return AgentsEnvironment(reason=f"its keyword arguments are not plain data ({error})")
    if isinstance(env, str):
        return AgentsEnvironment(id=env, kwargs=kwargs)
    place = place_of(env)
    if place is None:
        return AgentsEnvironment(reason="other processes cannot import what makes it")
    return AgentsEnvironment(kwargs=kwargs, **place)
