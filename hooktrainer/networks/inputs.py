"""How networks are called, and copied."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from tensordict import NestedKey
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import interaction_type
from torch import Tensor, nn

from ..errors import ConfigError
from .normalization import RunningNorm


def takes_one(network: nn.Module) -> bool:
    """Whether the ``forward`` of a network takes one tensor, as an MLP's does, not several."""
    kinds = inspect.Parameter
    forward = getattr(network, "_orig_mod", network).forward  # as it was before torch.compile
    schema = getattr(forward, "schema", None)
    if schema is not None:  # scripted; the first argument is the module
        return sum(not argument.has_default_value() for argument in schema.arguments[1:]) == 1
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.kind is kinds.VAR_POSITIONAL for parameter in parameters):
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        and parameter.default is kinds.empty
    ]
    return len(needed) == 1


def check_inputs(module: nn.Module, in_keys: Sequence[NestedKey], inputs: Sequence[object]) -> None:
    """Raise a `ConfigError` if ``module`` was not called with one input for each of ``in_keys``."""
    if len(inputs) != len(in_keys):
        raise ConfigError(
            f"{type(module).__name__} was called with {len(inputs)} inputs, but it reads "
            f"{len(in_keys)}: call it with one tensor for each of {list(in_keys)}."
        )


def check_size(name: str, network: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Explain a failed call: refuse inputs that the first layer of a network cannot take.

    Args:
        name: The network's owner, for messages.
        network: The network; checked if it begins with a linear layer.
        inputs: Its inputs, ``[*batch, features]`` each.

    Raises:
        ConfigError: If their features together are not those of the first layer.
    """
    while type(network) is nn.Sequential and len(network):
        network = network[0]
    given = [one.shape[-1] for one in inputs if one.ndim]
    if isinstance(network, nn.Linear) and sum(given) != network.in_features:
        sizes = " + ".join(map(str, given))
        raise ConfigError(
            f"{name}: its network takes {network.in_features} features, and its inputs have "
            f"{sizes}: build it for {sum(given)}, or change in_keys."
        )


def split_mask(inputs: Sequence[Tensor], has_mask: bool) -> tuple[Sequence[Tensor], Tensor | None]:
    """Split off the action mask, which is the last input if there is one."""
    return (inputs[:-1], inputs[-1]) if has_mask else (inputs, None)


def arguments(inputs: Sequence[Tensor], join: bool) -> Sequence[Tensor]:
    """The arguments of a network: its inputs, or these concatenated along their last dimension.

    Args:
        inputs: ``[*batch, ...]`` each.
        join: Whether the network takes one tensor, see `takes_one`.
    """
    return (torch.cat(list(inputs), -1),) if join and len(inputs) > 1 else inputs


# -- Exploration: when to explore, and the epsilon-greedy policy.


def is_deterministic() -> bool:
    """Whether TorchRL's ``set_exploration_type`` requests other than random actions."""
    mode = interaction_type()
    return mode is not None and mode is not InteractionType.RANDOM


# -- Copies of networks: with new weights, and such that share what is not learned.

Network = TypeVar("Network", bound=nn.Module)


def copy_network(network: Network) -> Network:
    """Copy a network, sharing its observation statistics (`RunningNorm`) with the copy."""
    norms = [module for module in network.modules() if isinstance(module, RunningNorm)]
    return copy.deepcopy(network, {id(norm): norm for norm in norms})


def fresh_copy(network: Network) -> Network:
    """Copy a network like `copy_network`, with newly initialized weights."""
    variant = copy_network(network)
    for module in variant.modules():
        reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return variant
