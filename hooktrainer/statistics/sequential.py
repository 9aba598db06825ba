"""Adding seeds until it is decided, without being fooled by looking often.

Who tests after every new seed and stops when p < 0.05 finds a difference sooner or later, also
where there is none. Here the numbers of seeds at which is looked are set beforehand, and each look
spends its part of the 5 % (Lan and DeMets 1983). What a look may call a difference is read off the
same seeds with the names of the groups exchanged at random, from look to look, so that the whole
procedure is exact where both score alike, whatever the distribution of the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike

from .improvement import brunner_munzel, exchanged
from .intervals import Scores, as_table

_GROWTH, _LEAST_GROWTH = 1.75, 1.25
_SPENT = 0.8  # of the error; the rest is for groups of unlike spreads, where nothing is exact


@dataclass(frozen=True)
class Decision:
    """What is decided so far.

    Attributes:
        best: The group that is better than every other one; ``None`` if there is none yet.
        better: Pairs that are told apart: the better one, and the other.
        seeds: Seeds of each group at the last look; 0 before the first.
        next_look: How many seeds each group needs to be looked at again; ``None`` if the best one
            is found, or the budget is spent.
    """

    best: str | None
    better: tuple[tuple[str, str], ...]
    seeds: int
    next_look: int | None


def looks(budget: int, first: int = 5) -> list[int]:
    """The numbers of seeds a group at which is looked: three quarters more from one to the next.

    Args:
        budget: The most seeds of a group.
        first: The fewest.

    Raises:
        ValueError: If ``first`` is below 3 or above the budget.
    """
    if not 3 <= first <= budget:
        raise ValueError(f"first={first} has to be between 3 and the budget, {budget} seeds")
    sizes = [first]
    while sizes[-1] < budget:
        following = round(sizes[-1] * _GROWTH)
        sizes.append(following if following * _LEAST_GROWTH <= budget else budget)
    return sizes


def decided(
    scores: Mapping[str, ArrayLike],
    budget: int,
    *,
    minimize: bool = False,
    error: float = 0.05,
    first: int = 5,
    permutations: int = 9_999,
    seed: int = 0,
) -> Decision:
    """Say whether one group is better than all others, or when to look again.

    Call it as often as you like while seeds are added: it looks at the numbers of seeds of `looks`
    alone, and a seed beyond the last of them is not seen yet. The probability of calling any group
    better where all score alike is at most ``error``. Of several pairs, each has its share of it.

    Args:
        scores: Of each group ``[seeds]``, or ``[seeds, tasks]``, in the order in which the seeds
            were added; that order may not depend on the scores.
        budget: The most seeds a group. Only ``scores`` may change from call to call.
        minimize: Whether less is better.
        error: The probability of a false finding that is allowed.
        first: Seeds a group at the first look.
        permutations: How often names are exchanged; more than 50 a look for each pair.
        seed: Of the exchanges.

    Raises:
        ValueError: If there are fewer than two groups, or scores that are no such tables.
    """
    if len(scores) < 2:
        raise ValueError(f"nothing to decide between {list(scores)}: give two groups or more")
    sizes = looks(budget, first)
    fewest = min(len(np.asarray(values)) for values in scores.values())
    if fewest < first:
        return Decision(None, (), 0, first)
    sign = -1 if minimize else 1
    tables = {name: sign * as_table(values) for name, values in scores.items()}
    done = [size for size in sizes if size <= fewest]
    pairs = list(combinations(tables, 2))
    better: list[tuple[str, str]] = []
    for index, (a, b) in enumerate(pairs):
        way = _tell_apart(
            tables[a], tables[b], done, len(sizes), error / len(pairs), permutations, (seed, index)
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
    """1 if the first was better at one of the looks, -1 if the second was, else 0."""
    rng = np.random.default_rng(seed)
    tasks = first.shape[1]
    pooled = np.empty((0, tasks))
    labels = np.empty((permutations + 1, tasks, 0), np.bool_)
    crossed = np.zeros(permutations + 1, np.bool_)  # of each way, whether a look has stopped it
    for number, (before, size) in enumerate(pairwise([0, *done]), start=1):
        new = size - before
        labels = np.concatenate([labels, exchanged(new, new, tasks, permutations, rng)], axis=-1)
        pooled = np.concatenate([pooled, first[before:size], second[before:size]])
        found = brunner_munzel(pooled, labels)
        size_of = np.where(crossed, -1.0, np.abs(found))
        allowed = int(_SPENT * error * number / planned * (permutations + 1)) - int(crossed.sum())
        ordered = np.sort(size_of)[::-1]
        # As many ways as are allowed stop here, those furthest apart; ties all do, or none does.
        level = ordered[allowed] if allowed < len(ordered) else -1.0
        crossed |= size_of > max(level, 0.0) if allowed > 0 else False
        if crossed[0]:
            return 1 if found[0] > 0 else -1
    return 0
