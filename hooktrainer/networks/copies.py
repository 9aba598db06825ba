"""Copies of networks: with new weights, and such that share what is not learned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import nn

from .normalization import RunningNorm

Network = TypeVar("Network", bound=nn.Module)


def copy_network(network: Network) -> Network:
    """A copy that shares the statistics by which observations are normalized.

    So a target network, and every one of an ensemble, sees an observation as the others do.
    """
    norms = [module for module in network.modules() if isinstance(module, RunningNorm)]
    return copy.deepcopy(network, {id(norm): norm for norm in norms})


def fresh_copy(network: Network) -> Network:
    """Such a copy, its weights drawn anew."""
    variant = copy_network(network)
    for module in variant.modules():
        reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return variant
