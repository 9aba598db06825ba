"""A policy's observations and actions as plain data, so that loading needs no Gymnasium.

One agent is a single group, whose tensors have no agent dimension.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..base.untrusted import decode_data, refusing
from ..base.words import listed, printable
from ..errors import CheckpointError, ConfigError, DamagedCheckpointError
from .actions import DTYPES, Action, Part, check_start, single

Array = npt.NDArray[Any]
Answer = Callable[[Sequence[Tensor]], Any]
MASK = "action_mask"
PRESENCE = "mask"

_MOST_AGENTS = 1 << 12


@dataclasses.dataclass(frozen=True)
class Observation:
    """One tensor that a policy reads.

    Attributes:
        keys: The policy's keys for it; with several agents, in the group's TensorDict.
        path: The keys, or tuple indices, that lead to it in the observation.
        shape: Its shape for one environment and agent.
        dtype: The type it is converted to.
        start: Subtracted, so that discrete values count from 0.
        group: The group whose agents observe it; ``None`` for one agent or the global state.
    """

    keys: tuple[str, ...]
    path: tuple[str | int, ...]
    shape: tuple[int, ...]
    dtype: str
    start: Any = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.key} has the type {self.dtype!r:.40}")
        check_start(self.start, self.shape)

    @property
    def key(self) -> str:
        """Its keys, with dots between them."""
        return ".".join(self.keys)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type it is converted to, in PyTorch."""
        return torch.from_numpy(np.empty(0, self.dtype)).dtype

    @property
    def is_presence(self) -> bool:
        """Whether it marks the agents that act."""
        return self.group is not None and self.key == PRESENCE and not self.path

    def take(
        self, observation: Any, action_mask: Any = None, whose: str = ""
    ) -> tuple[Tensor, bool]:
        """Find it in an observation, or take the mask; see `convert`. ``whose`` is for messages."""
        if self.key == MASK and not self.path:
            if action_mask is None:
                raise ConfigError(f"this policy needs the keyword action_mask{whose}.")
            return self.convert(action_mask, whose)
        value = observation
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                what = "dict" if isinstance(key, str) else "tuple"
                raise ConfigError(
                    f"the observation{whose} lacks {'.'.join(map(str, self.path))!r}; the policy "
                    f"reads a {what} with it."
                ) from None
        return self.convert(value, whose)

    def convert(self, value: Any, whose: str = "") -> tuple[Tensor, bool]:
        """Return the tensor ``[batch, *shape]``, and whether ``value`` was a batch."""
        name = self.key + whose
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:  # uneven rows, a tensor elsewhere
            raise ConfigError(f"{name} is not an array: {error}") from None
        if array.dtype.kind not in "biuf":
            raise ConfigError(
                f"{name} is a {type(value).__name__}; the policy needs an array of numbers."
            )
        batched = array.ndim == len(self.shape) + 1
        if array.shape[batched:] != self.shape or array.ndim > len(self.shape) + 1:
            expected = ", ".join(map(str, self.shape))
            raise ConfigError(
                f"{name} has shape {list(array.shape)}; the policy needs [{expected}], or "
                f"[{', '.join(filter(None, ('batch', expected)))}]."
            )
        if self.start is not None:
            array = array - np.asarray(self.start)
        array = np.array(array if batched else array[None], dtype=self.dtype, order="C")
        return torch.from_numpy(array), batched

    def __str__(self) -> str:
        name = self.key if self.group is None else f"{self.group}.{self.key}"
        return f"{name}: {self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Group:
    """Agents with the same actions: their key in a TensorDict, and their names in order.

    One agent is a group without names, and without an agent dimension.
    """

    action: Action
    name: str = ""
    agents: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Interface:
    """Everything that policies read, in the order of the inputs, and their actions."""

    inputs: tuple[Observation, ...]
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        agents, names = self.agents, [group.name for group in self.groups]
        lonely = len(names) != 1 and not all(group.agents for group in self.groups)
        if not names or lonely or len(agents) > _MOST_AGENTS:
            raise ValueError(f"there are {len(agents)} agents in {len(names)} groups")
        if not self.inputs:
            raise ValueError("nothing is read")
        if len(set(agents)) < len(agents) or len(set(names)) < len(names):
            raise ValueError("two agents, or two groups, have one name")
        known = names if agents else []
        if unknown := {one.group for one in self.inputs if one.group is not None}.difference(known):
            raise ValueError(f"{min(unknown)!r:.80} is no group")

    @classmethod
    def of(cls, path: Path, facts: Mapping[str, Any]) -> Interface:
        """Read the interface of the policy in a directory from its facts."""
        with refusing(f"{path} is damaged", DamagedCheckpointError):
            return decode_data(cls, facts["interface"])

    @property
    def agents(self) -> list[str]:
        """The names of all agents; empty for one agent."""
        return [agent for group in self.groups for agent in group.agents]

    @property
    def action(self) -> Part | None:
        """The action of one agent, if it is one array."""
        part = self.groups[0].action.parts[0]
        return None if self.agents or part.path else part

    @property
    def reads_state(self) -> bool:
        """Whether several agents' policies read the global state."""
        return bool(self.agents) and any(one.group is None for one in self.inputs)

    @property
    def reads(self) -> str:
        """The inputs, for people."""
        return ", ".join(map(str, self.inputs))

    @property
    def acts(self) -> str:
        """The actions, for people."""
        if not self.agents:
            return str(self.groups[0].action)
        return ", ".join(f"{one.name} ({len(one.agents)}): {one.action}" for one in self.groups)

    def examples(self) -> list[Tensor]:
        """Empty examples of the inputs, on the device ``meta``."""
        return [
            torch.empty(
                (1, *self.agent_dimension(one), *one.shape), dtype=one.torch_dtype, device="meta"
            )
            for one in self.inputs
        ]

    def check(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Check a program's outputs for one observation; return those after the actions.

        Raises:
            CheckpointError: If the environment does not take the actions.
        """
        if len(outputs) < len(self.groups):
            raise ValueError("its program does not return actions for all groups")
        for group, action in zip(self.groups, outputs, strict=False):
            agents = (len(group.agents),) if group.agents else ()
            wanted = [1, *agents, *group.action.shape]
            is_index = group.action.is_index
            if list(action.shape) != wanted or (is_index and action.is_floating_point()):
                raise CheckpointError(
                    f"the policy's action{f' of {group.name:.80}' * bool(agents)} is "
                    f"{action.dtype} {list(action.shape)}; the environment's, "
                    f"{group.action!s:.200}, needs {'indices ' * is_index}{wanted}."
                )
        return list(outputs[len(self.groups) :])

    def read(
        self, observation: Any, action_mask: Any = None, state: Any = None
    ) -> tuple[list[Tensor], Answer]:
        """Return the inputs, ``[batch, ...]``, and a function from the outputs to actions.

        Arguments and actions are those of `LoadedPolicy.__call__`.
        """
        if self.agents:
            if hasattr(observation, "batch_size"):
                return self._read_groups(observation)
            return self._read_agents(observation, action_mask or {}, state)
        taken = {one.key: one.take(observation, action_mask) for one in self.inputs}
        batched = _is_batch(taken)

        def answer(outputs: Sequence[Tensor]) -> Any:
            actions = self.groups[0].action.convert(outputs[0])
            return actions if batched else single(actions)

        return [tensor for tensor, _ in taken.values()], answer

    def _read_agents(
        self, observation: Any, masks: Mapping[str, Any], state: Any
    ) -> tuple[list[Tensor], Answer]:
        """Read dicts by agent of what one agent observes, without those that do not act."""
        known = self.agents
        names = printable(listed(known))
        if not isinstance(observation, Mapping) or not observation:
            raise ConfigError(
                f"the observation is {observation!r:.80}; these policies act for several agents: "
                f"pass a dict of what each of {names} observes, or a TensorDict by group."
            )
        if unknown := [agent for agent in observation if agent not in known]:
            raise ConfigError(f"the policies know no agent {unknown[0]!r:.80}; theirs are {names}.")
        if state is None and self.reads_state:
            raise ConfigError(
                "these policies read the state of the whole environment: pass state=, which a "
                "parallel environment of PettingZoo gives with env.state()."
            )
        taken: dict[str, tuple[Tensor, bool]] = {}
        for one in self.inputs:
            if one.group is None:
                taken[one.key] = one.convert(state)
            elif not one.is_presence:
                for agent in filter(observation.__contains__, self.members(one)):
                    taken[f"{one.key} of {agent}"] = one.take(
                        observation[agent], masks.get(agent), f" of {agent}"
                    )
        batched = bool(taken) and _is_batch(taken)
        size = len(next(iter(taken.values()))[0]) if taken else 1

        def row(one: Observation, agent: str) -> Tensor:
            if one.is_presence:
                return torch.full((size,), agent in observation)
            found = taken.get(f"{one.key} of {agent}")
            if found is not None:
                return found[0]
            return torch.full((size, *one.shape), one.key == MASK, dtype=one.torch_dtype)

        inputs = [
            taken[one.key][0]
            if one.group is None
            else torch.stack([row(one, agent) for agent in self.members(one)], 1)
            for one in self.inputs
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
        """Read a TensorDict ``[*batch]`` with one for each group, which gets the actions."""
        batch = tuple(data.batch_size)
        inputs = []
        for one in self.inputs:
            key = one.keys if one.group is None else (one.group, *one.keys)
            own = (*self.agent_dimension(one), *one.shape)
            value = data.get(key, None)
            if value is None:
                raise ConfigError(f"the TensorDict lacks {key}, which the policies read.")
            if tuple(value.shape) != (*batch, *own):
                raise ConfigError(
                    f"{key} has shape {list(value.shape)}; the policies need {[*batch, *own]}."
                )
            value = value.detach().to("cpu", one.torch_dtype)
            inputs.append(value.reshape(math.prod(batch), *own))

        def answer(outputs: Sequence[Tensor]) -> Any:
            for group, action in zip(self.groups, outputs, strict=False):
                data.set((group.name, "action"), action.reshape(*batch, *action.shape[1:]))
            return data

        return inputs, answer

    def members(self, one: Observation) -> tuple[str, ...]:
        """The agents that observe it, if there are several."""
        return next((group.agents for group in self.groups if group.name == one.group), ())

    def agent_dimension(self, one: Observation) -> tuple[int, ...]:
        """The number of agents that observe it, if there are several."""
        return () if one.group is None else (len(self.members(one)),)


def _is_batch(taken: Mapping[str, tuple[Tensor, bool]]) -> bool:
    """Whether all parts are batches, which must have one size; otherwise all are single."""
    sizes = {
        name: f"a batch of {len(tensor)}" if batched else "a single one"
        for name, (tensor, batched) in taken.items()
    }
    if len(set(sizes.values())) > 1:
        parts = ", ".join(f"{name} is {size}" for name, size in sizes.items())
        raise ConfigError(f"the parts of the observation differ: {parts}.")
    return "a single one" not in sizes.values()
