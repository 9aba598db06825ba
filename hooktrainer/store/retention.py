"""Retention policies of a run's saved files, joined with ``|`` (either) and ``&`` (both).

``Last(5) | Best(3, "eval/return") | EveryFrames(1_000_000)`` keeps the five latest, the three
best, and the first of every million frames. Checkpoints and saved policies are kept by the same
rules, which see of them what is in `Saved`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from ..base.checks import check_choice, check_count, check_positive
from ..errors import ConfigError


class Saved(Protocol):
    """A saved item that retention may delete: a checkpoint, a policy."""

    @property
    def path(self) -> Path:
        """Its directory."""

    @property
    def frames(self) -> int:
        """Environment frames of the run when it was saved."""

    @property
    def time(self) -> float:
        """When it was saved, in seconds since 1970."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Its metrics, by name."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each of its files, by a key that identifies the content, such as a hash."""


AnySaved = TypeVar("AnySaved", bound=Saved)


class Retention(ABC):
    """A policy that selects which of a run's saved files to keep."""

    @abstractmethod
    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of what to keep.

        Args:
            saved: All of the run, in the order it was saved. The choice must depend on these alone:
                it is made again whenever something is saved.
        """

    def __or__(self, other: Retention) -> Retention:
        return _Joined(self, other, set.union)

    def __and__(self, other: Retention) -> Retention:
        return _Joined(self, other, set.intersection)


@dataclass(frozen=True)
class _Joined(Retention):
    left: Retention
    right: Retention
    join: Callable[[set[Path], set[Path]], set[Path]]

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        return self.join(self.left.keep(saved), self.right.keep(saved))


@dataclass(frozen=True)
class All(Retention):
    """Keeps everything."""

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return all paths."""
        return {one.path for one in saved}


@dataclass(frozen=True)
class Last(Retention):
    """Keeps the ``n`` that were saved last."""

    n: int

    def __post_init__(self) -> None:
        check_count("Last: n", self.n)

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of the last ``n``."""
        return {one.path for one in saved[-self.n :]}


@dataclass(frozen=True)
class Best(Retention):
    """Keeps the ``n`` with the best value of a metric; of equal ones, the later.

    What lacks the metric, or has NaN for it, is not ranked.
    """

    n: int
    metric: str
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        check_count("Best: n", self.n)
        check_choice("Best: mode", self.mode, ("max", "min"))

    def ranked(self, saved: Iterable[AnySaved]) -> list[AnySaved]:
        """Return those that have the metric, the best first; ``saved`` in the order of saving."""
        sign = 1 if self.mode == "max" else -1
        rated = [
            (sign * value, number, one)
            for number, one in enumerate(saved)
            if not math.isnan(value := one.metrics.get(self.metric, math.nan))
        ]
        rated.sort(key=lambda item: item[:2], reverse=True)
        return [one for _, _, one in rated]

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of the best ``n``."""
        return {one.path for one in self.ranked(saved)[: self.n]}


@dataclass(frozen=True)
class EveryFrames(Retention):
    """Keeps the first in every ``n`` environment frames."""

    n: float

    def __post_init__(self) -> None:
        check_positive("EveryFrames: n", self.n)

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of the first of each interval."""
        return _first_of_each(saved, lambda one: one.frames, self.n)


@dataclass(frozen=True)
class EveryHours(Retention):
    """Keeps the first in every ``n`` hours of the clock."""

    n: float

    def __post_init__(self) -> None:
        check_positive("EveryHours: n", self.n)

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of the first of each interval."""
        return _first_of_each(saved, lambda one: one.time / 3600, self.n)


def _first_of_each(
    saved: Sequence[Saved], measure: Callable[[Saved], float], n: float
) -> set[Path]:
    latest_first = sorted(saved, key=measure)[::-1]
    return set({measure(one) // n: one.path for one in latest_first}.values())


@dataclass(frozen=True)
class MaxBytes(Retention):
    """Keeps the latest that fit together in ``n`` bytes; shared files count once."""

    n: int

    def __post_init__(self) -> None:
        check_positive("MaxBytes: n", self.n)

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of the latest that fit."""
        kept: set[Path] = set()
        seen: dict[str, int] = {}
        for one in reversed(saved):
            seen |= one.sizes
            if sum(seen.values()) > self.n:
                break
            kept.add(one.path)
        return kept


@dataclass(frozen=True)
class Spread(Retention):
    """Keeps ``n``: the first, the last, and those nearest to even marks between the two."""

    n: int

    def __post_init__(self) -> None:
        check_count("Spread: n", self.n, least=2)

    def keep(self, saved: Sequence[Saved]) -> set[Path]:
        """Return the paths of those to keep; all, if there are no more than ``n``."""
        left = sorted(saved, key=lambda one: one.frames)
        if len(left) <= self.n:
            return {one.path for one in left}
        first, last = left[0].frames, left[-1].frames
        kept = {left[0].path, left[-1].path}
        left = left[1:-1]
        for mark in range(1, self.n - 1):
            frames = first + (last - first) * mark / (self.n - 1)
            nearest = min(left, key=lambda one: abs(one.frames - frames))
            kept.add(nearest.path)
            left.remove(nearest)
        return kept


def best_of(keep: Retention) -> Best | None:
    """Return the first `Best` in a retention policy: it selects the best of the run.

    Raises:
        ConfigError: If it, or a part of it, is no retention policy.
    """
    if not isinstance(keep, Retention):
        raise ConfigError(
            f"keep={keep!r} of type {type(keep).__module__}.{type(keep).__name__} is no retention "
            "policy: give Last(5), Best(1, 'eval/return') or another of hooktrainer.store."
        )
    if isinstance(keep, _Joined):
        left, right = best_of(keep.left), best_of(keep.right)
        return left or right
    return keep if isinstance(keep, Best) else None
