"""Observations and actions of several agents' policies as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.words import listed, printable
from ..errors import ConfigError, DamagedCheckpointError
from .actions import Action, JointAction, decode, decode_action, single
from .interface import MASK, Answer, Interface, Observation, one_size

PRESENCE = "mask"

_MOST_AGENTS = 1 << 12


@dataclasses.dataclass(frozen=True)
class SavedGroup:
    """Agents that have the same observations and actions.

    Attributes:
        name: The key of its entries in a TensorDict.
        agents: The names of its agents, in their order along the agent dimension.
        action: The action of one agent.
    """

    name: str
    agents: tuple[str, ...]
    action: Action | JointAction


@dataclasses.dataclass(frozen=True)
class GroupInput:
    """One tensor ``[batch, agents, *shape]`` that the policies read.

    Attributes:
        group: The group whose agents observe it; ``None`` for the global state ``[batch, *shape]``.
        keys: The keys that lead to it in the group's TensorDict.
        part: Its form for one agent, and its place in the observation. ``"mask"`` without a place
            marks the agents that act.
    """

    group: str | None
    keys: tuple[str, ...]
    part: Observation

    @property
    def is_presence(self) -> bool:
        """Whether it marks the agents that act."""
        return self.part.key == PRESENCE and not self.part.path

    def blank(self, batch: int) -> Tensor:
        """Padding for an absent agent, ``[batch, *shape]``."""
        allows_all = self.part.key == MASK
        return torch.full((batch, *self.part.shape), allows_all, dtype=self.part.torch_dtype)


@dataclasses.dataclass(frozen=True)
class AgentsInterface:
    """Everything that several agents' policies read, in the order of the inputs, and their actions.

    The program returns actions ``[batch, agents, ...]`` of each group.
    """

    groups: tuple[SavedGroup, ...]
    entries: tuple[GroupInput, ...]

    def __post_init__(self) -> None:
        agents = list(self.agents)
        names = [group.name for group in self.groups]
        if not agents or len(agents) > _MOST_AGENTS or not all(g.agents for g in self.groups):
            raise ValueError(f"there are {len(agents)} agents in {len(names)} groups")
        if len(set(agents)) < len(agents) or len(set(names)) < len(names):
            raise ValueError("two agents, or two groups, have one name")
        if unknown := {e.group for e in self.entries if e.group is not None}.difference(names):
            raise ValueError(f"{min(unknown)!r:.80} is no group")
        if not self.entries:
            raise ValueError("nothing is read")

    @property
    def agents(self) -> Iterator[str]:
        """The names of all agents."""
        return (agent for group in self.groups for agent in group.agents)

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AgentsInterface:
        """Return what `encode` wrote."""
        groups = tuple(
            SavedGroup(_name(g["name"]), _names(g["agents"]), decode_action(g["action"]))
            for g in data["groups"]
        )
        entries = tuple(
            GroupInput(
                None if e["group"] is None else _name(e["group"]),
                _names(e["keys"]),
                decode(Observation, e["part"]),
            )
            for e in data["entries"]
        )
        return cls(groups, entries)

    def examples(self) -> list[Tensor]:
        """Empty examples of the policies' inputs."""
        return [entry.part.example(*self._agents_of(entry)) for entry in self.entries]

    def check(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Check the policies' outputs for one observation; return those after the actions."""
        for group, action in zip(self.groups, outputs, strict=False):
            if tuple(action.shape[:2]) != (1, len(group.agents)):
                raise ValueError(f"its program does not return an action for each {group.name!r}")
        if len(outputs) < len(self.groups):
            raise ValueError("its program does not return actions for all groups")
        return list(outputs[len(self.groups) :])

    @property
    def reads_state(self) -> bool:
        """Whether the policies read the global state."""
        return any(entry.group is None for entry in self.entries)

    def read(
        self, observation: Any, action_mask: Any = None, state: Any = None
    ) -> tuple[list[Tensor], Answer]:
        """Return the policies' inputs, and a function from their outputs to actions.

        Observations, masks and actions are dicts by agent of what `Interface.read` takes, without
        agents that do not act; or a TensorDict ``[*batch]`` with one for each group, of entries
        ``[*batch, agents, ...]``, which holds masks and state itself, and gets ``(group,
        "action")``, where discrete ones count from 0.
        """
        if hasattr(observation, "batch_size"):
            return self._read_groups(observation)
        self._check_names(observation)
        masks = action_mask or {}
        taken: dict[str, tuple[Tensor, bool]] = {}
        for entry in self.entries:
            if entry.group is None:
                taken[entry.part.key] = _whole(entry, state)
            elif not entry.is_presence:
                for agent in filter(observation.__contains__, self._members(entry)):
                    taken[f"{entry.part.key} of {agent}"] = entry.part.take(
                        observation[agent], masks.get(agent), f" of {agent}"
                    )
        batched = bool(taken) and one_size(taken)
        size = len(next(iter(taken.values()))[0]) if taken else 1

        def row(entry: GroupInput, agent: str) -> Tensor:
            if entry.is_presence:
                return torch.full((size,), agent in observation)
            if agent in observation:
                return taken[f"{entry.part.key} of {agent}"][0]
            return entry.blank(size)

        inputs = [
            taken[entry.part.key][0]
            if entry.group is None
            else torch.stack([row(entry, agent) for agent in self._members(entry)], 1)
            for entry in self.entries
        ]

        def answer(outputs: Sequence[Tensor]) -> dict[str, Any]:
            actions = {}
            for group, output in zip(self.groups, outputs, strict=False):
                for place, agent in enumerate(group.agents):
                    if agent in observation:
                        own = group.action.convert(output[:, place])
                        actions[agent] = own if batched else single(own)
            return actions

        return inputs, answer

    def _read_groups(self, data: Any) -> tuple[list[Tensor], Answer]:
        batch = tuple(data.batch_size)
        size = math.prod(batch)
        inputs = []
        for entry in self.entries:
            key = entry.keys if entry.group is None else (entry.group, *entry.keys)
            wanted = (*batch, *self._agents_of(entry), *entry.part.shape)
            value = data.get(key, None)
            if value is None:
                raise ConfigError(f"the TensorDict lacks {key}, which the policies read.")
            if tuple(value.shape) != wanted:
                raise ConfigError(
                    f"{key} has shape {list(value.shape)}; the policies need {list(wanted)}."
                )
            value = value.detach().to("cpu", entry.part.torch_dtype)
            inputs.append(value.reshape(size, *wanted[len(batch) :]))

        def answer(outputs: Sequence[Tensor]) -> Any:
            for group, action in zip(self.groups, outputs, strict=False):
                data.set((group.name, "action"), action.reshape(*batch, *action.shape[1:]))
            return data

        return inputs, answer

    def _check_names(self, observation: Any) -> None:
        known = list(self.agents)
        told = printable(listed(known))
        if not isinstance(observation, Mapping) or not observation:
            raise ConfigError(
                f"the observation is {observation!r:.80}; these policies act for several agents: "
                f"pass a dict of what each of {told} observes, or a TensorDict by group."
            )
        if unknown := [agent for agent in observation if agent not in known]:
            raise ConfigError(f"the policies know no agent {unknown[0]!r:.80}; theirs are {told}.")

    def _members(self, entry: GroupInput) -> tuple[str, ...]:
        return next((group.agents for group in self.groups if group.name == entry.group), ())

    def _agents_of(self, entry: GroupInput) -> tuple[int, ...]:
        """The agent dimension, if there is one."""
        return () if entry.group is None else (len(self._members(entry)),)

    @property
    def reads(self) -> str:
        """The inputs, for people."""
        return ", ".join(
            str(entry.part) if entry.group is None else f"{entry.group}.{entry.part}"
            for entry in self.entries
        )

    @property
    def acts(self) -> str:
        """The actions, for people."""
        return ", ".join(
            f"{group.name} ({len(group.agents)}): {group.action}" for group in self.groups
        )


def _whole(entry: GroupInput, state: Any) -> tuple[Tensor, bool]:
    """The global state ``[batch, *shape]``, and whether it was a batch."""
    if state is None:
        raise ConfigError(
            "these policies read the state of the whole environment: pass state=, which a parallel "
            "environment of PettingZoo gives with env.state()."
        )
    return entry.part.convert(state)


AnyInterface = Interface | AgentsInterface


def decode_interface(data: Mapping[str, Any]) -> AnyInterface:
    """Return what the ``encode`` of an interface wrote."""
    try:
        return AgentsInterface.of(data) if "groups" in data else Interface.of(data)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = printable(f"{type(error).__name__}: {error}")[:200]
        raise DamagedCheckpointError(f"its interface cannot be: {reason}") from None


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"{value!r:.80} is no name")
    return value


def _names(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or len(values) > _MOST_AGENTS:
        raise ValueError(f"{values!r:.80} is no list of names")
    return tuple(map(_name, values))
