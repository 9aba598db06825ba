"""`LiveView`: the progress bar of a Jupyter notebook, with metrics and a curve."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import Any, Final

from tqdm import tqdm

from ..base.axes import line_chart
from ..base.notebook import as_output, rows
from ..base.words import duration
from ..errors import ConfigError
from ..log.csv import read_csv
from ..store.run_dir import RunDir

_CURVES: Final = ("eval/return", "train/return", "validation/loss")
"""The metrics of the curve: the first that the run has, else its first loss."""
_MOST_METRICS: Final = 8
_MOST_POINTS: Final = 4_000  # of a curve, beyond which every second one is dropped
_SECONDS: Final = 1.0  # between two drawings


class LiveView(tqdm):  # type: ignore[type-arg]
    """Shows a run in the output of a notebook's cell, redrawn at most once a second.

    It shows frames, frames a second, time left, the latest metrics, and the curve of
    ``eval/return``, ``train/return`` or a loss. The curve of a resumed run begins where the run
    did.

    Args:
        trainer: The `Loop` of the run, which is about to begin.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._curves = _curves_so_far(trainer)
        self._handle: Any = None
        super().__init__(
            total=trainer.known_total,
            initial=trainer.progress.frames,
            mininterval=_SECONDS,
            smoothing=0.1,
            file=io.StringIO(),  # to which tqdm writes line breaks
        )

    def add_window(self, window: Mapping[str, float]) -> None:
        """Add the values of a log window to the curves."""
        for name, value in window.items():
            if (name in _CURVES or name.startswith("loss/")) and math.isfinite(value):
                points = self._curves.setdefault(name, [])
                points.append((self._trainer.progress.frames, value))
                if len(points) > _MOST_POINTS:
                    del points[1::2]

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the output; `tqdm` calls this when it is due."""
        line = self._line()
        data = {"text/html": self._html(line), "text/plain": line}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def _line(self) -> str:
        trainer, unit, known = self._trainer, self._trainer.source.unit, self.format_dict
        status, seconds = trainer.control.status, trainer.progress.seconds
        parts = [status, trainer.amount]
        if status != "running":
            rate = trainer.progress.frames / seconds if seconds else None
            left = duration(seconds)
        else:
            rate = known["rate"]
            left = f"{duration((self.total - self.n) / rate)} left" if rate and self.total else ""
        parts += [f"{rate:,.0f} {unit}/s" if rate else "", left]
        return " · ".join(filter(None, parts))

    def _html(self, line: str) -> str:
        share = min(1.0, self._trainer.progress.frames / self.total) if self.total else 0.0
        head = f'{escape(line)}<div class="bar"><div style="width:{share:.1%}"></div></div>'
        names = [*_CURVES, *(name for name in self._curves if name not in _CURVES)]
        drawn = ""
        if shown := next((name for name in names if self._curves.get(name)), None):
            drawn = line_chart(self._curves[shown], shown)
        cells = [
            (escape(name), f"{value + 0.0:.4g}") for name, value in self._latest(names).items()
        ]
        return as_output(f'{head}<div class="row">{drawn}{rows(cells)}</div>')

    def _latest(self, names: list[str]) -> dict[str, float]:
        """The latest values of the first metrics: returns, those of the progress bar, losses."""
        metrics = self._trainer.metrics
        wanted = dict.fromkeys([*names[: len(_CURVES)], *metrics.pbar_names, *names])
        found = {name: metrics.latest(name, wait=False) for name in wanted}
        there = [(name, value) for name, value in found.items() if value is not None]
        return dict(there[:_MOST_METRICS])


def _curves_so_far(trainer: Any) -> dict[str, list[tuple[float, float]]]:
    """Return the curves of a resumed run up to its checkpoint."""
    frames = trainer.progress.frames
    if trainer.checkpoints is None or not frames:
        return {}
    try:
        found = read_csv(RunDir(trainer.checkpoints.directory.parent).metrics, _CURVES)
    except (OSError, ConfigError):  # it has none
        return {}
    curves = {name: [p for p in points if p[0] <= frames] for name, points in found.items()}
    return {name: [p for p in points if math.isfinite(p[1])] for name, points in curves.items()}
