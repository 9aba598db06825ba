"""What is before a network: the trunk it shares with others, and the memory that may be in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from .memory.any_memory import IS_INIT, MemoryTrunk, States


def next_states(trunk: nn.Module | None) -> list[tuple[str, ...]]:
    """The keys under which a network on this trunk writes hidden states."""
    if not isinstance(trunk, MemoryTrunk):
        return []
    return [("next", *((key,) if isinstance(key, str) else key)) for key in trunk.hidden_keys]


def through(
    trunk: nn.Module | None, inputs: Sequence[Tensor], features: Tensor | None = None, rest: int = 0
) -> Sequence[Tensor]:
    """What a network behind a trunk is called with.

    Args:
        trunk: What it stands on; ``None`` for nothing.
        inputs: What both read, ``[*batch, ...]`` each.
        features: What the trunk makes of them, if that is known; then the first inputs may be left
            out.
        rest: How many of the inputs, the last, the trunk does not read.
    """
    if trunk is None:
        return inputs
    split = len(inputs) - rest
    known = trunk(*inputs[:split]) if features is None else features
    return (known, *inputs[split:])


@torch.no_grad()
def step_through(
    trunk: nn.Module | None, inputs: Sequence[Tensor]
) -> tuple[Sequence[Tensor], States]:
    """`through`, without gradient, and the hidden states to write, under their keys."""
    if not isinstance(trunk, MemoryTrunk):
        return through(trunk, inputs), {}
    features, states = trunk.remember(*inputs)
    return (features,), dict(zip(next_states(trunk), states.values(), strict=True))


def memory_of(*networks: Any) -> MemoryTrunk | None:
    """The memory that networks stand on; ``None`` if they have none or not one and the same."""
    trunks = [getattr(network, "trunk", None) for network in networks]
    first = trunks[0]
    if isinstance(first, MemoryTrunk) and all(trunk is first for trunk in trunks):
        return first
    return None


def lasting_keys(network: Any) -> list[NestedKey]:
    """What a network reads of every step: all but what its memory carries."""
    trunk = memory_of(network)
    carried = [] if trunk is None else [IS_INIT, *trunk.hidden_keys]
    return [key for key in network.in_keys if key not in carried]
