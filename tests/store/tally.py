"""Counting how often each failure was provoked, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

BACKENDS = ("torch", "torchsnapshot", "native")

_SURVIVED = "nothing lost, mixed or left over"
ROWS = {
    "SIGKILL while saving": _SURVIVED,
    "SIGKILL while saving in the background": _SURVIVED,
    "SIGKILL while old ones are deleted": _SURVIVED,
    "crash at every file-system call": _SURVIVED,
    "power loss at every file-system call": _SURVIVED,
    "power loss of a mounted ext4": "loadable",
    "EIO at every file-system call": "reported, older ones intact, no debris",
    "a rename that fails": "reported, older ones intact, no debris",
    "a deletion that fails": "reported, tried again",
    "a disk that is full": "reported, older ones intact, no debris",
    "a tmpfs that is full": "reported, older ones intact, no debris",
    "flipped bit": "detected, file named",
    "truncated or extended file": "detected, file named",
    "missing file": "detected, file named",
    "pickle planted in a file": "not run",
    "elements changed right after a background save": "saved as they were before",
    "leaves of every type, saved and loaded": "equal, of the same type",
    "empty and filled source x target hooks": "equal",
    "storage x sampler pairs of replay buffers": "equal, and sampled on equally",
}
"""What is provoked, and what shall come of it."""


class Tally:
    """How often each failure was provoked, with each back end, and how often all went well."""

    def __init__(self) -> None:
        self._tried: Counter[tuple[str, str]] = Counter()
        self._well: Counter[tuple[str, str]] = Counter()
        self._notes: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def __call__(self, row: str, backend: str, count: int = 1) -> Iterator[None]:
        """Count what the block does, and whether it ends without an exception."""
        assert row in ROWS, row
        self._tried[row, backend] += count
        yield
        self._well[row, backend] += count

    def note(self, row: str, what: str, count: int = 1) -> None:
        """Count something worth telling about a row, such as how many kills hit the middle."""
        self._notes[row, what] += count

    def table(self) -> list[str]:
        """The lines of the table; none if nothing was counted."""
        rows = [row for row in ROWS if any((row, backend) in self._tried for backend in BACKENDS)]
        lines = [("", *BACKENDS, "outcome")] if rows else []
        for row in rows:
            notes = "".join(
                f"; {count:,} {what}" for (of, what), count in self._notes.items() if of == row
            )
            bad = any(self._well[row, b] < self._tried[row, b] for b in BACKENDS)
            outcome = f"NOT {ROWS[row]}" if bad else ROWS[row]
            lines.append((row, *(self._cell(row, b) for b in BACKENDS), outcome + notes))
        widths = [max(len(line[i]) for line in lines) for i in range(4)] if lines else []
        return [
            f"{row:{widths[0]}}  {a:>{widths[1]}}  {b:>{widths[2]}}  {c:>{widths[3]}}  {outcome}"
            for row, a, b, c, outcome in lines
        ]

    def _cell(self, row: str, backend: str) -> str:
        tried, well = self._tried[row, backend], self._well[row, backend]
        if not tried:
            return "-"
        return f"{well:,}" if well == tried else f"{well:,} of {tried:,}"
