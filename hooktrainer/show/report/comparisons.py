"""Groups beside each other: how they differ, how surely, and who is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...statistics import (
    Decision,
    Interval,
    difference,
    holm,
    permutation_test,
    probability_of_improvement,
    seeds_to_separate,
)

ERROR: Final = 0.05
"""The probability of a false finding among all comparisons."""

Scores = NDArray[np.float64]
"""``[seeds, tasks]``."""


@dataclass(frozen=True)
class Comparison:
    """One group beside another.

    Attributes:
        first: The group.
        second: The other.
        difference: Of their interquartile means.
        improvement: The probability that a seed of the first does better than one of the second.
        p: Of there being no difference; ``None`` where seeds were added until it was decided, since
            a test of a set number of seeds claims too much then.
        corrected: Likewise, corrected for all comparisons that were made.
        separated: Whether the two are told apart, with an error of 5 % for all comparisons.
        verdict: What can be said.
    """

    first: str
    second: str
    difference: Interval
    improvement: Interval
    p: float | None
    corrected: float | None
    separated: bool
    verdict: str


def compare(
    scores: Mapping[str, Scores],
    pairs: Sequence[tuple[str, str]],
    decision: Decision | None = None,
    *,
    minimize: bool = False,
) -> list[Comparison]:
    """Put pairs of groups beside each other.

    Args:
        scores: Of each group.
        pairs: Which groups; all that are compared, since the error is for all of them.
        decision: Who is better, where seeds were added until that was decided; by default each
            pair is tested.
        minimize: Whether less is better.

    Returns:
        Those that are told apart first.
    """
    p_values: Sequence[float | None] = [None] * len(pairs)
    corrected = p_values
    if decision is None:
        found = [permutation_test(scores[first], scores[second]) for first, second in pairs]
        p_values, corrected = found, holm(found)
    made = []
    for (first, second), p, p_holm in zip(pairs, p_values, corrected, strict=True):
        a, b = scores[first], scores[second]
        wins = probability_of_improvement(a, b, minimize=minimize)
        if decision is not None:
            better = next((one for one in decision.better if set(one) == {first, second}), None)
        elif p_holm is not None and p_holm < ERROR:
            better = (first, second) if wins.value > 0.5 else (second, first)
        else:
            better = None
        made.append(
            Comparison(
                first=first,
                second=second,
                difference=difference(a, b),
                improvement=wins,
                p=p,
                corrected=p_holm,
                separated=better is not None,
                verdict=_open(first, second, a, b, len(pairs))
                if better is None
                else f"{better[0]} is better than {better[1]}",
            )
        )
    return sorted(made, key=lambda one: not one.separated)


def _open(first: str, second: str, a: Scores, b: Scores, comparisons: int) -> str:
    """What is said of two that are not told apart."""
    have = min(len(a), len(b))
    need = seeds_to_separate(a, b, error=ERROR / comparisons)
    if need is None:
        return f"{first} and {second} are not told apart, and 1,000 seeds would hardly do it"
    more = max(1, need - have)
    return f"about {more} more seed{'s' * (more != 1)} each would separate {first} from {second}"
