"""What a saved policy was worth: the episodes that it was played for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.seed_ranges import EVALUATION_SEED
from ..errors import ConfigError

SEED = EVALUATION_SEED
EPISODES = 10


def check_not_negative(name: str, value: int | None) -> None:
    """Refuse a negative seed or number of episodes.

    Args:
        name: What the user calls it.
        value: The number; ``None`` if it was not given.

    Raises:
        ConfigError: If it is negative.
    """
    if value is not None and value < 0:
        raise ConfigError(f"{name}={value}: give 0 or more.")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of playing some episodes with the deterministic policy.

    Attributes:
        seed: What the episodes were seeded from; see `episode_seed`.
        returns: Undiscounted return of each episode, in order.
        lengths: Its number of actions.
        seconds: How long all of them took to play.
    """

    seed: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seconds: float = 0.0

    @property
    def episodes(self) -> int:
        """How many episodes were played."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Mean of the returns."""
        return _mean(self.returns)

    @property
    def std(self) -> float:
        """Standard deviation of the returns, of these episodes alone (no Bessel correction)."""
        return _std(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean of the lengths."""
        return sum(self.lengths) / len(self.lengths)

    def encode(self) -> dict[str, Any]:
        """Return plain data; mean and deviation are there for those who read the file."""
        return {
            "seed": self.seed,
            "episodes": self.episodes,
            "mean": self.mean,
            "std": self.std,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "seconds": self.seconds,
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return what `encode` wrote.

        Raises:
            KeyError: If something is missing.
            ValueError: If it has no episode, or not a length for each, or these are no numbers.
        """
        returns, lengths = tuple(data["returns"]), tuple(data["lengths"])
        if not returns or len(returns) != len(lengths):
            raise ValueError(f"{len(returns)} returns and {len(lengths)} lengths")
        seconds = data.get("seconds", 0.0)
        if not all(type(n) is int and 0 <= n < 1 << 63 for n in (data["seed"], *lengths)):
            raise ValueError("a seed and lengths are whole numbers")
        if not all(type(x) is float or (type(x) is int and abs(x) < 1 << 53) for x in returns):
            raise ValueError("returns are numbers")
        if not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e11:
            raise ValueError(f"{seconds!r:.40} is no number of seconds")
        return cls(data["seed"], tuple(map(float, returns)), lengths, float(seconds))


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # of infinities, or nearly
        return math.nan


def _std(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) * (value - mean) for value in values]))
