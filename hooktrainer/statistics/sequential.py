"""Sequential comparison: seeds are added until one group is better, at a controlled error.

Testing after every new seed and stopping at p < 0.05 sooner or later finds a difference where there
is none. Here the numbers of seeds to look at are fixed beforehand, and each look spends its part of
the 5 % (Lan and DeMets 1983). Critical values come from the same seeds with group labels permuted,
from look to look, so the whole procedure is exact if both groups have the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike

from .improvement import brunner_munzel, permuted_labels
from .intervals import Scores, as_table

_FIRST, _GROWTH, _LEAST_GROWTH = 5, 1.75, 1.25
_ERROR = 0.05
# Share of the error; the rest is a margin where spreads differ and the test is not exact.
_SPENT = 0.8


@dataclass(frozen=True)
class Decision:
    """The decision so far.

    Attributes:
        best: The group that is better than every other one; ``None`` if there is none yet.
        better: Pairs with a significant difference: the better one, and the other.
        seeds: Seeds of each group at the last look; 0 before the first.
        next_look: Seeds that each group needs for the next look; ``None`` if the best one is found,
            or the budget is spent.
    """

    best: str | None
    better: tuple[tuple[str, str], ...]
    seeds: int
    next_look: int | None


def looks(budget: int) -> list[int]:
    """Return the numbers of seeds to look at, each about 1.75 times the one before.

    Raises:
        ValueError: If the budget is below 5.
    """
    if budget < _FIRST:
        raise ValueError(f"a budget of {budget} seeds is below the first look, at {_FIRST}")
    sizes = [_FIRST]
    while sizes[-1] < budget:
        following = round(sizes[-1] * _GROWTH)
        sizes.append(following if following * _LEAST_GROWTH <= budget else budget)
    return sizes


def decide(
    scores: Mapping[str, ArrayLike],
    budget: int,
    *,
    minimize: bool = False,
    permutations: int = 9_999,
    seed: int = 0,
) -> Decision:
    """Decide whether one group is better than all others, or when to look again.

    Call it at any time while seeds are added: it uses only the numbers of seeds of `looks`. If all
    groups have the same distribution, the probability of calling any one better is at most
    5 %, divided equally among the pairs.

    Args:
        scores: Group to ``[seeds]`` or ``[seeds, tasks]``, in the order in which the seeds were
            added; that order may not depend on the scores.
        budget: The most seeds of a group. Only ``scores`` may change from call to call.
        minimize: Whether less is better.
        permutations: Number of label permutations; more than 50 a look for each pair.
        seed: Seed of the permutations.

    Raises:
        ValueError: If there are fewer than two groups, or invalid scores.
    """
    if len(scores) < 2:
        raise ValueError(f"nothing to decide between {list(scores)}: give two groups or more")
    sizes = looks(budget)
    fewest = min(len(np.asarray(values)) for values in scores.values())
    if fewest < _FIRST:
        return Decision(None, (), 0, _FIRST)
    sign = -1 if minimize else 1
    tables = {name: sign * as_table(values) for name, values in scores.items()}
    done = [size for size in sizes if size <= fewest]
    pairs = list(combinations(tables, 2))
    better: list[tuple[str, str]] = []
    for index, (a, b) in enumerate(pairs):
        way = _tell_apart(
            tables[a], tables[b], done, len(sizes), _ERROR / len(pairs), permutations, (seed, index)
        )
        if way:
            better.append((a, b) if way > 0 else (b, a))
    wins = {name: sum(one == name for one, _ in better) for name in tables}
    best = next((name for name in tables if wins[name] == len(tables) - 1), None)
    over = best is not None or len(done) == len(sizes)
    return Decision(best, tuple(better), done[-1], None if over else sizes[len(done)])


def _tell_apart(
    first: Scores,
    second: Scores,
    done: list[int],
    planned: int,
    error: float,
    permutations: int,
    seed: tuple[int, int],
) -> int:
    """Return 1 if the first was better at one of the looks, -1 if the second was, else 0."""
    rng = np.random.default_rng(seed)
    tasks = first.shape[1]
    pooled = np.empty((0, tasks))
    labels = np.empty((permutations + 1, tasks, 0), np.bool_)
    crossed = np.zeros(permutations + 1, np.bool_)  # labellings that an earlier look has stopped
    for number, (before, size) in enumerate(pairwise([0, *done]), start=1):
        new = size - before
        labels = np.concatenate(
            [labels, permuted_labels(new, new, tasks, permutations, rng)], axis=-1
        )
        pooled = np.concatenate([pooled, first[before:size], second[before:size]])
        found = brunner_munzel(pooled, labels)
        size_of = np.where(crossed, -1.0, np.abs(found))
        allowed = int(_SPENT * error * number / planned * (permutations + 1)) - int(crossed.sum())
        ordered = np.sort(size_of)[::-1]
        # The most extreme labellings stop here, as many as allowed; ties together or not at all.
        level = ordered[allowed] if allowed < len(ordered) else -1.0
        crossed |= size_of > max(level, 0.0) if allowed > 0 else False
        if crossed[0]:
            return 1 if found[0] > 0 else -1
    return 0
