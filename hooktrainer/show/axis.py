"""Round numbers along an axis."""

from __future__ import annotations

import math


def ticks(low: float, high: float, most: int) -> tuple[list[tuple[float, str]], float, float]:
    """Choose where an axis is marked.

    Args:
        low: The least value shown.
        high: The greatest.
        most: About how many marks to make, at least 2.

    Returns:
        The marks, as values and labels, from below ``low`` to above ``high``; the first; the last.
    """
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [(i * step, label(i * step, step)) for i in range(first, last + 1)]
    return marks, first * step, last * step


def label(value: float, step: float) -> str:
    """A number on an axis whose marks are ``step`` apart, such as ``2.5k`` or ``0.01``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and (step >= size / 100):
            return f"{value / size:.10g}{unit}"
    if value == 0:
        return "0"
    if step < 1e-4:
        return f"{value:.3g}"
    decimals = next(n for n in range(7) if abs(round(step, n) - step) < 1e-6 * step)
    return f"{value:.{decimals}f}"


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Choose where an axis is marked on which equal ratios are equally long; both ends positive."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        marks = [step * 10.0**power for power in powers for step in steps]
        marks = [mark for mark in marks if low <= mark * (1 + 1e-9) and mark <= high * (1 + 1e-9)]
        if len(marks) >= 3:
            break
    return [(mark, f"{mark:g}") for mark in marks]
