"""Some policies spread evenly over a run of unknown length: when to save, and which to keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..store import Checkpoint, EveryFrames, Last, Retention

_HALVINGS = 6


@dataclass(frozen=True)
class Spread(Retention):
    """Keeps ``n``: the first, the last, and those nearest to even marks between the two."""

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or self.n < 2:
            raise ConfigError(f"Spread({self.n!r}): the number must be at least 2.")

    def keep(self, checkpoints: Sequence[Checkpoint]) -> set[Path]:
        """Return the paths of those to keep; all, if there are no more than ``n``."""
        left = sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.frames)
        if len(left) <= self.n:
            return {checkpoint.path for checkpoint in left}
        first, last = left[0].manifest.frames, left[-1].manifest.frames
        kept = {left[0].path, left[-1].path}
        left = left[1:-1]
        for mark in range(1, self.n - 1):
            frames = first + (last - first) * mark / (self.n - 1)
            nearest = min(left, key=lambda checkpoint: abs(checkpoint.manifest.frames - frames))
            kept.add(nearest.path)
            left.remove(nearest)
        return kept


class SpreadCadence:
    """When a policy is to be saved, so that a run has about ``n`` evenly spaced, however long.

    A run that goes on to its end has them at multiples of ``total_frames / (n - 1)``. One that ends
    early, because it is solved, must have some, too: so the spacing is smaller at first, and
    doubles each time that it would give more than twice as many. It is a fraction of the whole by a
    power of two, so those kept at one spacing are also right for the next.

    Args:
        n: How many.
        total_frames: Environment frames of a whole run.

    Raises:
        ConfigError: If ``n`` is below 2.
    """

    def __init__(self, n: int, total_frames: int) -> None:
        self.n = n
        self.final = Spread(n)
        self._total = total_frames
        self._look_at = 0.0

    def spacing(self, frames: int) -> float:
        """Frames between two policies when the run has come so far."""
        halvings = math.floor(math.log2(max(2 * self._total / max(frames, 1), 1)))
        return self._total / (self.n - 1) / 2 ** min(halvings, _HALVINGS)

    def due(self, frames: int, newest: int) -> bool:
        """Whether a multiple of the spacing lies behind the newest policy, at ``frames``."""
        if frames < self._look_at:
            return False
        spacing = self.spacing(frames)
        crossed = frames // spacing > newest // spacing
        self._look_at = 0 if crossed else (frames // spacing + 1) * spacing
        return crossed

    def keep(self, frames: int) -> Retention:
        """What to keep in the course of the run."""
        return EveryFrames(self.spacing(frames)) | Last(1)  # type: ignore[arg-type]
