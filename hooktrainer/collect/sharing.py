"""The states of collectors that share environments, put together and shared out anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import StateMismatchError
from .overlap.overlap_state import collector_state


def shares_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the collectors of which one was put together; itself if it was not."""
    if "workers" in state:
        return [share["collector"] for share in state["workers"]]
    return [collector_state(state)]


def resharded(
    states: Sequence[Mapping[str, Any]], num_envs: int, first_env: int, of: int
) -> dict[str, Any]:
    """A collector's state made of those of former shares; its episodes are all new ones.

    Args:
        states: Theirs, in order.
        num_envs: How many environments the collector has.
        first_env: Index of its first among all of them.
        of: How many there are in all.

    Raises:
        StateMismatchError: If there were more or fewer.
    """
    states = [share for state in states for share in shares_of(state)]
    episodes: list[int] = [episode for state in states for episode in state["episodes"]]
    if len(episodes) != of:
        raise StateMismatchError(
            f"The saved collector has {len(episodes)} environments, this one {of}."
        )
    frames = sum(state["frames"] for state in states)
    return {
        "frames": frames * num_envs // of,
        "seed": states[0]["seed"],
        "episodes": episodes[first_env : first_env + num_envs],
        "attributes": dict(states[0]["attributes"]),
        "rollout": None,
    }


def differing_envs(state: Mapping[str, Any], num_envs: int) -> list[str]:
    """A line if a state is not that of a collector with so many environments; see `resized`."""
    if "episodes" not in state:
        return ["the state is that of a collector of another kind"]
    number = len(state["episodes"])
    return [] if number == num_envs else [f"num_envs is {num_envs} here and {number} in the state"]


def resized(state: Mapping[str, Any], num_envs: int) -> dict[str, Any] | None:
    """A collector's state for another number of environments; its episodes are all new ones.

    Args:
        state: That of a collector which has all the environments of its run.
        num_envs: How many there are to be. Those that were not there before begin with the first
            of their episodes.

    Returns:
        ``None`` if it is the state of a collector of another kind.
    """
    own = collector_state(state)
    if "episodes" not in own:
        return None
    begun = [*own["episodes"], *[-1] * num_envs]
    return {**own, "episodes": begun[:num_envs], "rollout": None}
