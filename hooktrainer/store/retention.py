"""Which checkpoints to keep: small policies, joined with ``|`` (either) and ``&`` (both).

``Last(5) | Best(3, "eval/return") | EveryFrames(1_000_000)`` keeps the five latest, the three
best, and the first of every million frames.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError
from .stored import Checkpoint


class Retention(ABC):
    """Says which of a run's checkpoints to keep."""

    @abstractmethod
    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the checkpoints to keep.

        Args:
            checkpoints: All of the run, in the order they were committed. The choice must depend on
                these alone: it is made again after every commit.
        """

    def __or__(self, other: Retention) -> Retention:
        return _Either(self, as_retention(other))

    def __and__(self, other: Retention) -> Retention:
        return _Both(self, as_retention(other))


def as_retention(keep: Any) -> Retention:
    """Return what says which checkpoints to keep; refuse anything else before there are any.

    Raises:
        ConfigError: If it is something else.
    """
    if not isinstance(keep, Retention):
        raise ConfigError(
            f"keep={keep!r} of type {type(keep).__module__}.{type(keep).__name__} does not say "
            "which checkpoints to keep: give Last(5), Best(1, 'eval/return') or another of "
            "hooktrainer.store."
        )
    return keep


@dataclass(frozen=True)
class _Either(Retention):
    left: Retention
    right: Retention

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        return self.left.keep(checkpoints) | self.right.keep(checkpoints)


@dataclass(frozen=True)
class _Both(Retention):
    left: Retention
    right: Retention

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        return self.left.keep(checkpoints) & self.right.keep(checkpoints)


@dataclass(frozen=True)
class All(Retention):
    """Keeps every checkpoint."""

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return all paths."""
        return {checkpoint.path for checkpoint in checkpoints}


@dataclass(frozen=True)
class Last(Retention):
    """Keeps the ``n`` checkpoints committed last."""

    n: int

    def __post_init__(self) -> None:
        _positive("Last", self.n)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the last ``n``."""
        return {checkpoint.path for checkpoint in checkpoints[-self.n :]}


@dataclass(frozen=True)
class Best(Retention):
    """Keeps the ``n`` checkpoints with the best value of a metric; of equal ones, the later.

    Checkpoints without the metric, or with NaN for it, are not ranked.
    """

    n: int
    metric: str
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        _positive("Best", self.n)
        if self.mode not in ("max", "min"):
            raise ConfigError(f"Best(mode={self.mode!r}): the mode must be 'max' or 'min'.")

    def ranked(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Return the checkpoints that have the metric, the best first."""
        sign = 1 if self.mode == "max" else -1
        rated = [
            (sign * value, checkpoint.manifest.sequence, checkpoint)
            for checkpoint in checkpoints
            if not math.isnan(value := checkpoint.manifest.metrics.get(self.metric, math.nan))
        ]
        rated.sort(key=lambda item: item[:2], reverse=True)
        return [checkpoint for _, _, checkpoint in rated]

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the best ``n``."""
        return {checkpoint.path for checkpoint in self.ranked(checkpoints)[: self.n]}


@dataclass(frozen=True)
class EveryFrames(Retention):
    """Keeps the first checkpoint in every ``n`` environment frames."""

    n: int

    def __post_init__(self) -> None:
        _positive("EveryFrames", self.n)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the first of each interval."""
        ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.frames)
        return _first_of_each((c.manifest.frames // self.n, c) for c in ordered)


@dataclass(frozen=True)
class EveryHours(Retention):
    """Keeps the first checkpoint in every ``n`` hours of the clock."""

    n: float

    def __post_init__(self) -> None:
        _positive("EveryHours", self.n)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the first of each interval."""
        ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.time)
        return _first_of_each((int(c.manifest.time / 3600 // self.n), c) for c in ordered)


@dataclass(frozen=True)
class MaxBytes(Retention):
    """Keeps the latest checkpoints that fit together in ``n`` bytes; shared files count once."""

    n: int

    def __post_init__(self) -> None:
        _positive("MaxBytes", self.n)

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of the latest that fit."""
        kept: set[Path] = set()
        seen: dict[tuple[str, str], int] = {}
        for checkpoint in reversed(checkpoints):
            for name, record in checkpoint.manifest.files.items():
                seen[name, record.xxh3_128] = record.size
            if sum(seen.values()) > self.n:
                break
            kept.add(checkpoint.path)
        return kept


def _first_of_each(numbered: Iterable[tuple[int, Checkpoint]]) -> set[Path]:
    first: dict[int, Path] = {}
    for number, checkpoint in numbered:
        first.setdefault(number, checkpoint.path)
    return set(first.values())


def _positive(policy: str, value: float) -> None:
    if isinstance(value, bool) or not value > 0:
        raise ConfigError(f"{policy}({value!r}): the number must be positive.")


def best_of(policy: Retention) -> Best | None:
    """Return the first `Best` in a policy: what counts as the best checkpoint of the run."""
    if isinstance(policy, Best):
        return policy
    if isinstance(policy, _Either | _Both):
        return best_of(policy.left) or best_of(policy.right)
    return None
