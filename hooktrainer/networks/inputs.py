"""How networks are called, and copied."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import interaction_type
from torch import Tensor, nn

from .normalization import RunningNorm


def takes_one(network: nn.Module) -> bool:
    """Whether the ``forward`` of a network takes one tensor, as an MLP's does, not several."""
    forward = getattr(network, "_orig_mod", network).forward  # as it was before torch.compile
    parameters = list(inspect.signature(forward).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    return len(needed) == 1 and all(p.kind is not p.VAR_POSITIONAL for p in parameters)


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
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return variant
