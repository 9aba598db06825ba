"""Worlds of several learners as one larger world, and their parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .functional_world import Carry, FunctionalWorld, State

# What is a world's position, not what it is like.
_POSITION = {"keys", "carry", "_begun", "_first_env"}
_OWN = ("advance", "begin", "observations", "reset", "step", "_fresh", "_entries")


def why_not_larger(world: Any) -> str | None:
    """Why environments of others cannot be rows behind a world's own; `None` if they can.

    The functions of a `FunctionalWorld` are of each environment by itself. What stands beside them
    may not be.
    """
    kind = type(world).__name__
    if not isinstance(world, FunctionalWorld):
        return f"a {kind} is no FunctionalWorld"
    if not world.shares:
        return "its environments depend on each other"
    if any(getattr(type(world), name) is not getattr(FunctionalWorld, name) for name in _OWN):
        return f"{kind} steps in a way of its own"
    for name, value in vars(world).items():
        is_own = name not in _POSITION and isinstance(value, torch.Tensor) and value.ndim > 0
        if is_own and len(value) == world.num_envs > 1:
            return f"its {name} may be numbers of each environment"
    return None


def are_alike(world: FunctionalWorld, other: FunctionalWorld) -> bool:
    """Whether two worlds are of one class, size and parameters."""
    if type(world) is not type(other):
        return False
    mine, theirs = (
        {name: value for name, value in vars(one).items() if name not in _POSITION}
        for one in (world, other)
    )
    return mine.keys() == theirs.keys() and all(_same(mine[name], theirs[name]) for name in mine)


def joined(carries: Sequence[Carry], more: int) -> Carry:
    """The carries of several worlds one behind the other, and the first one's so often again."""
    rows = [*carries, *[carries[0]] * more]
    state: State
    if isinstance(rows[0].state, dict):
        states: Any = [each.state for each in rows]
        state = {key: torch.cat([one[key] for one in states]) for key in states[0]}
    else:
        state = torch.cat([each.state for each in rows])  # type: ignore[misc]
    keys, episode, length = (torch.cat(same) for same in list(zip(*rows, strict=True))[1:])
    return Carry(state, keys, episode, length)


def divided(carry: Carry, size: int) -> list[Carry]:
    """The carries of the worlds, each of so many environments, that are one larger world."""
    states: Sequence[Any]
    if isinstance(carry.state, dict):
        pieces = {key: torch.split(value, size) for key, value in carry.state.items()}
        states = [dict(zip(pieces, one, strict=True)) for one in zip(*pieces.values(), strict=True)]
    else:
        states = torch.split(carry.state, size)
    rest = [torch.split(value, size) for value in carry[1:]]
    return [Carry(*own) for own in zip(states, *rest, strict=True)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype is other.dtype and torch.equal(one, other)
    try:
        return one is other or bool(one == other)
    except Exception:  # of what cannot be compared
        return False
