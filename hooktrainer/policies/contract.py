"""The contract of an exported policy: its inputs, its outputs, and the run it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..base.plain import to_plain
from ..base.untrusted import MalformedError, decode_data, parse_yaml, read_file, refusing
from ..errors import CheckpointError, DamagedCheckpointError
from .actions import Action, Part
from .interface import MASK, Group, Interface, Observation
from .saved import SavedPolicy

Format = Literal["onnx", "program"]
SCHEMA = 1
_HEAD = """\
# A policy of hooktrainer. Tensors are [batch, *shape]; the shapes of a group begin with its agents.
# A path leads to an input in the environment's observation, and to an output in its action.
# The first hidden states begin an episode; each step's outputs are the next step's inputs.
"""
_MOST = 1 << 24  # bytes


@dataclasses.dataclass(frozen=True)
class Input:
    """An observation, by its name in the file; bounds are those of the environment's space."""

    name: str
    keys: tuple[str, ...]
    path: tuple[str | int, ...]
    shape: tuple[int, ...]
    dtype: str
    group: str | None = None
    low: Any = None
    high: Any = None


@dataclasses.dataclass(frozen=True)
class Output:
    """An action, or a part of one."""

    name: str
    path: tuple[str | int, ...]
    shape: tuple[int, ...]
    dtype: str
    group: str | None = None


@dataclasses.dataclass(frozen=True)
class HiddenState:
    """A hidden state, and its values at the start of an episode: one number, or an array."""

    input: str
    output: str
    shape: tuple[int, ...]
    dtype: str
    first: Any

    @property
    def tensor(self) -> torch.Tensor:
        """The state at the start of an episode, ``[*shape]``."""
        first = torch.tensor(self.first, dtype=getattr(torch, self.dtype))
        return first.expand(self.shape)


@dataclasses.dataclass(frozen=True)
class Contract:
    """What `hooktrainer.policies.export_policy` wrote.

    Attributes:
        schema: Version of this format.
        kind: Format of the file.
        size: Its bytes.
        sha256: Its hash.
        samples: Whether it samples actions.
        agents: Names of the agents by group; empty for one agent.
        inputs: Its observations, in order.
        outputs: Its actions, in order.
        hidden_states: What follows them among inputs and outputs.
        observations: The number of observations on which it was compared with the policy.
        largest_difference: The largest difference of a number on these.
        steps_per_second: How often it acted in the environment, if that is known.
        policy: The fields of the `SavedPolicy`.
        versions: Versions of the packages that wrote it.
    """

    schema: int
    kind: Format
    size: int
    sha256: str
    samples: bool
    agents: Mapping[str, tuple[str, ...]]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    hidden_states: tuple[HiddenState, ...]
    observations: int
    largest_difference: float
    steps_per_second: float | None
    policy: Mapping[str, Any]
    versions: Mapping[str, str]

    @property
    def interface(self) -> Interface:
        """What the file reads and how it acts: conversions are inside it."""
        read = [
            Observation(one.keys, one.path, _own(one), one.dtype, None, one.group)
            for one in self.inputs
        ]
        parts: dict[str | None, list[Part]] = {}
        for one in self.outputs:
            parts.setdefault(one.group, []).append(Part(one.path, _own(one), one.dtype))
        groups = [
            Group(Action(tuple(own)), name or "", self.agents.get(name or "", ()))
            for name, own in parts.items()
        ]
        return Interface(tuple(read), tuple(groups))

    def saved(self, file: Path) -> SavedPolicy:
        """The policy that was exported, at the place of the file."""
        fields = {**self.policy, "path": file, "nbytes": self.size}
        return decode_data(SavedPolicy, fields)

    def encode(self) -> str:
        """Return the content of its file."""
        import yaml

        plain = to_plain(self)
        return _HEAD + yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=100)


def _own(one: Input | Output) -> tuple[int, ...]:
    """The shape of one agent."""
    return one.shape[one.group is not None :]


def read_contract(file: Path) -> Contract:
    """Read the contract of an exported file.

    Raises:
        CheckpointError: If one of the two is missing, or it is malformed.
    """
    path = contract_of(file)
    for needed in (file, path):
        if not needed.exists():
            raise CheckpointError(f"there is no {needed}; hooktrainer export writes both.")
    with refusing(f"{file} cannot be loaded: its contract {path.name}", DamagedCheckpointError):
        text = read_file(path, path.parent, _MOST).decode()
        contract = decode_data(Contract, parse_yaml(text))
        if contract.schema != SCHEMA:
            raise MalformedError(f"schema {contract.schema}, and this version reads {SCHEMA}")
        return contract


def contract_of(file: Path) -> Path:
    """Return where the contract of an exported file is."""
    return file.with_suffix(".yaml")


def bounds_of(env: Any, one: Observation, agents: Sequence[str]) -> dict[str, Any]:
    """Return the bounds of an observation in its space: one number, or one for each of a few.

    ``agents`` are those that observe it, if there are several.
    """
    if one.is_presence or (one.key == MASK and not one.path):
        return {}
    try:
        space = env.observation_space
        if agents:
            space = space(agents[0])
        for key in one.path:
            space = space[key]
        if hasattr(space, "low"):
            low, high = np.asarray(space.low), np.asarray(space.high)
        else:
            low = np.asarray(space.start)
            high = low + np.asarray(space.n) - 1
    except (AttributeError, LookupError, TypeError):  # a state, bits
        return {}
    limits: dict[str, Any] = {}
    for name, values in (("low", low), ("high", high)):
        if np.unique(values).size == 1:
            limits[name] = values.flat[0]
        elif values.size <= 64:
            limits[name] = values
    return limits


def states_of(names: Sequence[str], first: Sequence[torch.Tensor]) -> tuple[HiddenState, ...]:
    """Describe hidden states with their first values."""
    return tuple(
        HiddenState(
            name,
            f"next.{name}",
            tuple(state.shape),
            str(state.dtype).removeprefix("torch."),
            state.tolist() if state.any() else 0,
        )
        for name, state in zip(names, first, strict=True)
    )
