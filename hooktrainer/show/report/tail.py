"""Following a metrics file while it is written."""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from pathlib import Path

from ...base.untrusted import MalformedError, open_file

_MOST_POINTS = 1024


class MetricsTail:
    """The metrics of a run so far, brought up to date by reading what is new.

    Of a long run, curves are thinned evenly, so that memory does not grow with it.

    Args:
        path: The run's `metrics.csv`, which need not be there yet.

    Attributes:
        latest: Metric name to its last value.
        curves: Metric name to at most 1,024 of its ``(frames, value)`` points.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._strides: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.latest: dict[str, float] = {}
        self.curves: dict[str, list[tuple[int, float]]] = {}

    def update(self) -> None:
        """Read the whole lines that were added since the last time."""
        try:
            with open_file(self.path, self.path.parent) as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._offset:  # a resumed run has cut the file back
                    self._forget()
                file.seek(self._offset)
                new = file.read(size - self._offset)
        except (FileNotFoundError, MalformedError):
            self._forget()
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode(errors="replace").split("\n"):
            with suppress(ValueError, csv.Error):  # not a row of ours
                ((step, name, value),) = csv.reader([line])
                self._add(int(step), name, float(value))

    def _add(self, step: int, name: str, value: float) -> None:
        self.latest[name] = value
        curve = self.curves.setdefault(name, [])
        stride = self._strides.setdefault(name, 1)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if (count - 1) % stride == 0:
            curve.append((step, value))
        if len(curve) > _MOST_POINTS:
            del curve[1::2]
            self._strides[name] = 2 * stride
