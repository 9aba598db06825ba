"""Some policies spread evenly over a run of unknown length: when to save, and what to keep."""

from __future__ import annotations

import math

from ..store import EveryFrames, Last, Retention, Spread

_HALVINGS = 6


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
        return EveryFrames(self.spacing(frames)) | Last(1)
