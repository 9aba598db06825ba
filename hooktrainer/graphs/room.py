"""`Room`: for how many learners something is compiled, and whether it does when some have ended."""

from __future__ import annotations


class Room:
    """Rows for learners, in what is computed for all of them.

    What is compiled for many serves for fewer as well, and computes rows that are nobody's. It does
    so until these have cost as much time as compiling did, which is at most twice what the best
    choice would have cost (Karlin et al., 1988, Competitive snoopy caching). The rows change no
    bits, so it does not matter that this depends on the time.

    Args:
        rows: How many there are.
        is_compiled: Whether it is compiled; otherwise other rows cost nothing.
    """

    def __init__(self, rows: int, is_compiled: bool) -> None:
        self.rows = rows
        self._is_compiled = is_compiled
        self._compiling: float | None = None
        self._wasted = 0.0

    def fits(self, needed: int) -> bool:
        """Whether it is to be used where so many rows are needed.

        Args:
            needed: Learners, and what has to lie behind them.
        """
        if self.rows == needed:
            return True
        return (
            self._is_compiled
            and self.rows > needed
            and (self._compiling is None or self._wasted <= self._compiling)
        )

    def used(self, needed: int, seconds: float) -> None:
        """Take note of a use, the first of which compiles.

        Args:
            needed: How many rows were needed.
            seconds: How long it took.
        """
        if self._compiling is None:
            self._compiling = seconds
        else:
            self._wasted += seconds * (1 - needed / self.rows)
