"""The time to reach a threshold, where some seeds did not reach it.

Such a seed is censored: it needs longer than it was trained. Leaving it out, or counting its
training time as the time it needed, makes an algorithm look faster the more often it fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .intervals import LEAST_SEEDS, Scores, expanded_confidence


@dataclass(frozen=True)
class TimeToThreshold:
    """The time that seeds need to reach a threshold, in the unit of the input.

    Attributes:
        reached: Number of seeds that reached it.
        seeds: Number of all seeds.
        median: The Kaplan-Meier median; ``None`` if fewer than half reached it.
        low: Lower end of its 95 % interval; ``None`` if there is none.
        high: Upper end; ``None`` if it is beyond the training time, or there is no interval.
        horizon: The time up to which all were trained.
        restricted_mean: The mean of the time to the threshold or the horizon, whichever is first.
    """

    reached: int
    seeds: int
    median: float | None
    low: float | None
    high: float | None
    horizon: float
    restricted_mean: float


def time_to_reach(
    times: ArrayLike,
    reached: ArrayLike,
    *,
    horizon: float | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> TimeToThreshold:
    """Estimate the time to a threshold.

    Args:
        times: When each seed reached the threshold, or else how long it was trained.
        reached: Whether each seed reached it.
        horizon: End of the restricted mean; by default the shortest time of a seed that did not
            reach it. Use the same one for all groups that are compared.
        resamples: Number of bootstrap resamples for the interval, which needs 5 seeds.
        seed: Seed of the resamples.

    Raises:
        ValueError: If there is no seed, or a time is negative or not finite.
    """
    at, event = np.asarray(times, np.float64), np.asarray(reached, np.bool_)
    if at.ndim != 1 or at.shape != event.shape or not len(at):
        raise ValueError(f"times and reached are [seeds] each, not {at.shape} and {event.shape}")
    if not (np.isfinite(at).all() and (at >= 0).all()):
        raise ValueError("times hold what is negative, NaN or infinity")
    order = np.lexsort((~event, at))  # at equal times, events before censored seeds
    at, event = at[order], event[order]
    if horizon is None:
        horizon = float(at[~event].min() if not event.all() else at.max())
    (survival,) = _survival(event, np.ones((1, len(at))))
    steps = np.diff(np.concatenate([[0.0], np.minimum(at, horizon), [horizon]]))
    before = np.concatenate([[1.0], survival])
    middle = _median(at, survival[None])[0]
    low = high = np.inf
    if len(at) >= LEAST_SEEDS["median"]:
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(len(at), np.full(len(at), 1 / len(at)), resamples)
        outside = (1 - expanded_confidence(len(at), len(at) - 1)) / 2
        drawn = np.sort(_median(at, _survival(event, counts)))
        low, high = drawn[int(outside * resamples)], drawn[-1 - int(outside * resamples)]
    return TimeToThreshold(
        reached=int(event.sum()),
        seeds=len(at),
        median=_finite(middle),
        low=_finite(low),
        high=_finite(high),
        horizon=float(horizon),
        restricted_mean=float((before * steps).sum()),
    )


def _survival(event: np.ndarray, counts: np.ndarray) -> Scores:
    """Return Kaplan-Meier survival after each time by weights of seeds, ``[resamples, seeds]``."""
    at_risk = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    gone = np.where(event, counts, 0)
    return np.cumprod(
        1 - np.divide(gone, at_risk, out=np.zeros(counts.shape), where=at_risk > 0), 1
    )


def _median(at: Scores, survival: Scores) -> Scores:
    below = survival <= 0.5 + 1e-12
    return np.where(below.any(1), at[below.argmax(1)], np.inf)


def _finite(time: float) -> float | None:
    return float(time) if np.isfinite(time) else None
