"""Reference scores: what a return of a task is measured by, so that tasks can be put together.

A normalized score is 0 where the lower reference is, and 1 where the upper one is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .estimators import Scores


@dataclass(frozen=True)
class Reference:
    """The two returns of a task that its normalized scores hang on.

    Attributes:
        low: The return that counts as 0, such as that of random play.
        high: The return that counts as 1, such as that of a human or an expert.
        source: Where both are from.

    Raises:
        ValueError: If ``high`` is not above ``low``.
    """

    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        """Check the two."""
        if not self.low < self.high:
            raise ValueError(f"high={self.high} has to be above low={self.low}")

    def normalize(self, scores: ArrayLike, *, minimize: bool = False) -> Scores:
        """Normalized scores, of which more is better.

        Args:
            scores: Of any shape.
            minimize: Whether less of them is better: it is 1 at ``low`` then, and 0 at ``high``.
        """
        share = (np.asarray(scores, np.float64) - self.low) / (self.high - self.low)
        return 1 - share if minimize else share
