"""Seeds of several runs, as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..base.checks import check_seed
from ..errors import ConfigError

OWN: Final = "own"
"""The seed of a run that is one of several, as its ``config.yaml`` has it."""

_MOST: Final = 100_000


def as_seeds(given: Any) -> tuple[int, ...] | None:
    """Parse seeds: how many, ``"3-6"``, ``"1,5,9"``, or several integers.

    Raises:
        ConfigError: If they are none of these, or a seed is given twice.
    """
    if given is None:
        return None
    seeds: list[Any] = []
    try:
        if isinstance(given, str):
            for word in given.split(","):
                first, dash, last = word.partition("-")
                seeds += _few(int(first), int(last) + 1) if dash else [int(first)]
            if "," not in given and "-" not in given:
                seeds = list(_few(0, seeds[0]))
        elif isinstance(given, int):
            seeds = list(_few(0, given))
        else:
            seeds = list(given)
    except (TypeError, ValueError):
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"seeds={given!r:.80}: give how many, from 0 on, or which, each once: 8, '3-6', "
            "'1,5,9', or '4-4' for one."
        )
    for seed in seeds:
        check_seed("seeds", seed)
    return tuple(seeds)


def _few(first: int, end: int) -> range:
    if end - first > _MOST:
        raise ValueError
    return range(first, end)


def words_of_seeds(seeds: Sequence[int]) -> str:
    """Format seeds so that `as_seeds` parses them, a single one as ``"3-3"``."""
    first, last = seeds[0], seeds[-1]
    if list(seeds) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, seeds))
