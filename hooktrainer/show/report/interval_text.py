"""Estimates with their intervals, as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...statistics import Interval, Reaching
from .comparisons import Comparison

NONE = "-"


def interval_text(one: Interval) -> str:
    """An estimate and its interval, such as ``471 [455, 482]``; ``[-]`` where there is none.

    As many digits as the interval is sure of, and one more.
    """
    if one.low is None or one.high is None:
        return (
            f"{one.value:,.4g} [{NONE}]" if abs(one.value) < 1e4 else f"{one.value:,.0f} [{NONE}]"
        )
    width = one.high - one.low
    if width <= 0:
        return f"{one.value:,.6g} [{one.low:,.6g}, {one.high:,.6g}]"
    decimals = max(0, 1 - math.floor(math.log10(width)))
    return f"{one.value:,.{decimals}f} [{one.low:,.{decimals}f}, {one.high:,.{decimals}f}]"


def comparison_texts(one: Comparison) -> list[str]:
    """How two groups differ, and how surely; the names are in what follows from it."""
    return [
        interval_text(one.difference),
        interval_text(one.improvement),
        NONE if one.p is None else f"{one.p:.2g}",
        NONE if one.corrected is None else f"{one.corrected:.2g}",
    ]


def reaching_text(one: Reaching | None, shown: Callable[[float], str]) -> str:
    """The median time to a threshold and its interval.

    Args:
        one: The times; ``None`` for none.
        shown: What a time looks like.
    """
    if one is None or one.reached == 0:
        return NONE
    middle = f"over {shown(one.horizon)}" if one.median is None else shown(one.median)
    if one.low is None:
        return middle
    return f"{middle} [{shown(one.low)}, {'…' if one.high is None else shown(one.high)}]"
