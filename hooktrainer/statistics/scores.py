"""From a run's curve to its one score: the seed is the unit, whatever there was within its run.

An evaluation logs the mean over its episodes, so a curve has one value an evaluation. Curves are
joined linearly between evaluations, and compared at the frames that all of them have: a run that
was given more frames has no advantage from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from .curve import Curve

Score = Callable[[Curve, float], float]
"""Takes a curve of at least one point, and the frames up to which it counts."""

_TAIL = 0.1


def shared_frames(curves: Sequence[Curve], ended: Sequence[bool]) -> float:
    """The frames up to which all curves can be compared.

    Args:
        curves: Of at least one point each.
        ended: Of each, whether its run ended on its own account, its task solved: nothing will be
            added, so it keeps its last value and does not hold the others back.

    Raises:
        ValueError: If there is no curve.
    """
    held = [curve for curve, over in zip(curves, ended, strict=True) if not over]
    ends = [float(curve.frames[-1]) for curve in held or curves]
    return min(ends) if held else max(ends)


def last(curve: Curve, frames: float) -> float:
    """The value at those frames: that of the last evaluation, if it was there."""
    return float(np.interp(frames, curve.frames, curve.values))


def tail(curve: Curve, frames: float) -> float:
    """The mean over the last tenth of the frames, which one lucky evaluation moves less."""
    return _mean_over(curve, frames * (1 - _TAIL), frames)


def best(curve: Curve, frames: float) -> float:
    """The best evaluation up to those frames.

    It is the higher the more often was evaluated: compare runs that were evaluated equally often.
    """
    return float(curve.values[: max(1, int(np.searchsorted(curve.frames, frames, "right")))].max())


def area(curve: Curve, frames: float) -> float:
    """The area under the curve, as a mean over frames: who learns sooner has more of it.

    What came before the first evaluation is not known and not counted.
    """
    return _mean_over(curve, float(curve.frames[0]), frames)


SCORES: Final[Mapping[str, Score]] = {"last": last, "tail": tail, "best": best, "area": area}
"""By name, what can be made of a curve."""


def score_named(name: str, *, minimize: bool = False) -> Score:
    """One of `SCORES`, for a metric of which more is better, or less.

    Args:
        name: A name of `SCORES`.
        minimize: Whether less is better: the best evaluation is the lowest then.
    """
    score = SCORES[name]
    if not minimize:
        return score
    return lambda curve, frames: -score(Curve(curve.frames, -curve.values), frames)


def first_reached(
    curve: Curve, threshold: float, frames: float, *, minimize: bool = False
) -> float | None:
    """The frames of the first evaluation that reached a threshold; ``None`` if there was none.

    Args:
        curve: The curve.
        threshold: The value that is enough.
        frames: Up to which it counts.
        minimize: Whether less is enough as well, in place of more.
    """
    enough = curve.values <= threshold if minimize else curve.values >= threshold
    there = np.flatnonzero(enough & (curve.frames <= frames))
    return float(curve.frames[there[0]]) if len(there) else None


def _mean_over(curve: Curve, low: float, high: float) -> float:
    low = max(low, float(curve.frames[0]))
    if high <= low:
        return last(curve, high)
    inner = curve.frames[(curve.frames > low) & (curve.frames < high)].astype(np.float64)
    grid = np.concatenate([[low], inner, [high]])
    values = np.interp(grid, curve.frames, curve.values)
    return float(np.sum(np.diff(grid) * (values[1:] + values[:-1]) / 2) / (high - low))
