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
    forward = getattr(network, "_orig_mod", network).forward  # as it was before torch.compile
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
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
    """Explain a failed call: refuse inputs that a network's first layer, if linear, cannot take."""
    while type(network) is nn.Sequential and len(network):
        network = network[0]
    given = [one.shape[-1] for one in inputs if one.ndim]
    if isinstance(network, nn.Linear) and sum(given) != network.in_features:
        sizes = " + ".join(map(str, given))
        raise ConfigError(
            f"{name}: its network takes {network.in_features} features, and its inputs have "
            f"{sizes}: build it for {sum(given)}, or change in_keys."
        )


def arguments(inputs: Sequence[Tensor], join: bool) -> Sequence[Tensor]:
    """The inputs ``[*batch, ...]`` of a network, concatenated if it takes one (see `takes_one`)."""
    return (torch.cat(list(inputs), -1),) if join and len(inputs) > 1 else inputs


def is_deterministic() -> bool:
    """Whether TorchRL's ``set_exploration_type`` requests other than random actions."""
    mode = interaction_type()
    return mode is not None and mode is not InteractionType.RANDOM


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
