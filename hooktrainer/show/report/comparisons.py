"""Comparison of groups: difference, test and verdict."""

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
"""The probability of a false finding over all comparisons."""

Scores = NDArray[np.float64]
"""``[seeds, tasks]``."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of two groups.

    Attributes:
        difference: Difference of the interquartile means.
        improvement: The probability that a seed of the first does better than one of the second.
        p: p-value of the permutation test; ``None`` where seeds were added until it was decided,
            since a test for a fixed number of seeds is invalid then.
        corrected: The same, corrected for the number of comparisons.
        separated: Whether one is better, at an error of 5 % over all comparisons.
        verdict: The conclusion in words.
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
    """Compare pairs of groups, with a 5 % error over all pairs; separated pairs come first.

    By default each pair is tested; ``decision`` has the result if seeds were added until it was
    made.
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
    """Return the verdict for two groups that are not separated."""
    have = min(len(a), len(b))
    need = seeds_to_separate(a, b, error=ERROR / comparisons)
    if need is None:
        return f"{first} and {second} are not told apart, and 1,000 seeds would hardly do it"
    more = max(1, need - have)
    return f"about {more} more seed{'s' * (more != 1)} each would separate {first} from {second}"
