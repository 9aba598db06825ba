"""`Curve`: a metric of a run over its frames."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Curve:
    """A metric of a run.

    Attributes:
        frames: Where it was written, rising, ``int64 [n]``.
        values: Finite, ``float64 [n]``.
    """

    frames: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float]]) -> Curve:
        """Make a curve of ``(frames, value)`` pairs; what is not finite is left out."""
        kept = dict(pair for pair in pairs if math.isfinite(pair[1]))
        frames = np.array(sorted(kept), np.int64)
        return cls(frames, np.array([kept[int(frame)] for frame in frames], np.float64))

    def best(self, *, minimize: bool = False) -> tuple[int, float] | None:
        """The frames and the value of its highest (or lowest) point; ``None`` if it has none."""
        if not len(self.values):
            return None
        index = int(self.values.argmin() if minimize else self.values.argmax())
        return int(self.frames[index]), float(self.values[index])
