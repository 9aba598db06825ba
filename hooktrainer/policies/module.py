"""A saved policy as an `nn.Module`, and a saved policy's weights in a network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..base.words import plural
from ..errors import ConfigError
from .actions import Part
from .interface import Group, Interface
from .loaded import LoadedPolicy
from .policy_files import read_content, read_facts
from .saved import SavedPolicy, find_policy

PREFIX = "policy."
"""What the names of a policy's own weights begin with; the others are constants."""


class PolicyModule(nn.Module):
    """A saved policy as a module: from the environment's observations to its actions.

    It takes a tensor ``[batch, ...]`` for each of `inputs`, and returns one for each of `outputs`;
    hidden states come last. With several agents, those of a group are ``[batch, agents, ...]``.
    Its parameters are those that were trained, with the names that they had, after ``policy.``.

    Args:
        policy: What `load_policy` returned. If it samples, so does this, from torch's generator.

    Attributes:
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        frames: The frames that the policy was trained for.
    """

    def __init__(self, policy: LoadedPolicy) -> None:
        super().__init__()
        self._interface, self._program = policy.interface, policy.program
        self.frames = policy.saved.frames
        weights = dict(zip(policy.program.names, policy.program.weights, strict=True))
        self._places = [_register(self, n, w, n in policy.trained) for n, w in weights.items()]
        states = [name.removeprefix("state.") for name in policy.initial_states]
        self.inputs = [_name(one.group, one.key) for one in policy.interface.inputs] + states
        self.outputs = [
            action_name(group, part)
            for group in policy.interface.groups
            for part in group.action.parts
        ] + [f"next.{name}" for name in states]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The actions, and the next hidden states."""
        values = self._values(inputs)
        results = self._program.compute(values, inputs[0].shape[0])
        return tuple(environment_actions(self._interface, results))

    def scores(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What the actions are chosen by, which gradients go through, as `forward` does not.

        Returns:
            For each choice among ``n`` actions their logits or values, ``[batch, n]``, or ``[batch,
            choices, n]`` for a MultiDiscrete action, the least float where one has fewer; for
            choices between no and yes the probabilities of yes; a continuous action as it is.
        """
        values = self._values(inputs)
        actions = len(self._interface.groups)
        return tuple(self._program.scores(values, inputs[0].shape[0], actions))

    def _values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        observed = self._interface.inputs
        if len(inputs) != len(self.inputs):
            raise ConfigError(
                f"a policy of {', '.join(self.inputs)} takes {plural(len(self.inputs), 'tensor')}, "
                f"each [batch, ...], not {len(inputs)}."
            )
        seen = [
            value if one.start is None else value - torch.as_tensor(one.start)
            for one, value in zip(observed, inputs, strict=False)
        ]
        weights = [getattr(module, name) for module, name in self._places]
        return [*seen, *inputs[len(seen) :], *weights]


def environment_actions(interface: Interface, results: Sequence[Tensor]) -> list[Tensor]:
    """A program's results as the environment's actions and hidden states."""
    actions = [
        action
        for group, result in zip(interface.groups, results, strict=False)
        for action in group.action.tensors(result)
    ]
    return [*actions, *results[len(interface.groups) :]]


def action_name(group: Group, part: Part) -> str:
    """The name of a part of an action."""
    return _name(group.name, "action", *map(str, part.path))


def _name(*parts: str | None) -> str:
    return ".".join(filter(None, parts))


def _register(root: nn.Module, path: str, weight: Tensor, trained: bool) -> tuple[nn.Module, str]:
    """Register a weight in a tree of modules; return the module that has it, and its name there."""
    *above, name = path.split(".")
    module = root
    for part in above:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    if trained:
        module.register_parameter(name, nn.Parameter(weight.clone()))
    else:
        module.register_buffer(name, weight)
    return module, name


@torch.no_grad()
def copy_weights(policy: nn.Module, saved: nn.Module | SavedPolicy | str | os.PathLike[str]) -> int:
    """Copy the weights of a saved policy into a network that has the same ones.

    Args:
        policy: The network.
        saved: As for `load_policy`, or a `PolicyModule`.

    Returns:
        The frames that the saved policy was trained for; 0 of another module.

    Raises:
        ConfigError: If ``saved`` is none of these; or if one of the two has a weight that the other
            lacks, or of another shape.
        CheckpointError: If there is no such policy.
    """
    weights: Mapping[str, Tensor]
    if isinstance(saved, nn.Module):
        weights, what = saved.state_dict(), f"this {type(saved).__name__}"
        frames = saved.frames if isinstance(saved, PolicyModule) else 0
    elif not isinstance(saved, (SavedPolicy, str, os.PathLike)):
        raise ConfigError(
            f"{type(saved).__name__} is no saved policy: give its path, RUN@WHICH, or what "
            "load_policy(..., as_module=True) returned."
        )
    else:
        found = saved if isinstance(saved, SavedPolicy) else find_policy(saved)
        weights, what = read_content(found.path, read_facts(found.path)).weights, str(found.path)
        frames = found.frames
    trained = dict(policy.named_parameters())
    own = trained | dict(policy.named_buffers())
    given = {n.removeprefix(PREFIX): w for n, w in weights.items() if n.startswith(PREFIX)}
    problems = [] if given else ["has no weights"]
    problems += [
        f"has {name!r} of {list(given[name].shape)}, and not {list(mine.shape)}"
        for name, mine in own.items()
        if name in given and given[name].shape != mine.shape
    ]
    problems += [f"has no {name!r}" for name in trained if name not in given]
    problems += [f"has {name!r}, which the new one lacks" for name in given if name not in own]
    if problems:
        raise ConfigError(
            f"the policy of {what} {problems[0]}: its weights fit only a policy "
            "of the same kind, spaces and networks (num_cells, activation, memory, ...). To go on "
            "from all that a run has learned, fork it."
        )
    for name, weight in given.items():
        own[name].copy_(weight)
    return frames
