"""`view`: what one run did, as HTML in a notebook and as text in a terminal."""

from __future__ import annotations

import io
import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..base.axes import line_chart
from ..base.notebook import as_output, rows
from ..base.words import did_you_mean, duration, listed, plural, printable
from ..errors import USER_ERRORS, ConfigError, NotFoundError
from ..loop.timing import time_rows, time_table
from ..policies import list_policies
from ..policies.saved import best_policy
from ..store.lookup import list_checkpoints, no_run
from ..store.run_dir import RunDir
from .chart import sparkline
from .curves import Curve, read_curves
from .html import number_text
from .report.summary import RunSummary, summarize

_SECONDS = 8.0  # length of the film
_LEAST = 0.001  # share of the time below which a phase is left out


@dataclass(frozen=True, repr=False)
class RunView:
    """What a run did. A notebook shows it as HTML, with a film; ``print`` as text.

    Attributes:
        run: The run's directory.
        summary: How it stands.
        metric: The metric of the curve; ``None`` if it has none yet.
        curves: All its curves, by metric.
        times: Seconds by phase. Windows hold seconds per batch, which are summed up for batches of
            equal size.
        film: Whether HTML includes a film.
        trust: Whether the film may run the code that its environment needs.
    """

    run: RunDir
    summary: RunSummary
    metric: str | None
    curves: Mapping[str, Curve]
    times: Mapping[str, float]
    film: bool = True
    trust: bool = False

    @property
    def lines(self) -> list[str]:
        """Status, curve, and what is saved, a line each."""
        seen, path = self.summary, printable(self.run.path)
        of = f" of {seen.total_frames:,}" if seen.total_frames else ""
        reached = f"{seen.frames:,}{of} {printable(seen.unit)} in {duration(seen.seconds)}"
        lines = [f"{path}: {printable(seen.status)} · {reached}"]
        if seen.reason:
            lines.append(printable(seen.reason))
        if self.metric is not None:
            curve = self.curves[self.metric]
            last, best = number_text(curve.values[-1]), number_text(curve.values.max())
            lines.append(f"{printable(self.metric)} {last}, at most {best}")
        saved = list_checkpoints(self.run.checkpoints).checkpoints
        at = f", the latest at {saved[-1].frames:,}" if saved else ""
        policies = list_policies(self.run)
        played = f", {plural(len(policies), 'policy', 'policies')}" if policies else ""
        lines.append(f"{plural(len(saved), 'checkpoint')}{at}{played}")
        return lines

    def __repr__(self) -> str:
        lines = self.lines
        if self.metric is not None:
            lines.append(sparkline(self.curves[self.metric].values, 60))
        if self.times:
            console = Console(file=io.StringIO(), width=100, color_system=None, force_jupyter=False)
            console.print(time_table(self.times))
            lines += ["", console.file.getvalue().rstrip()]  # type: ignore[attr-defined]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *others = map(escape, self.lines)
        body = f"<p><b>{first}</b></p>" + "".join(f'<p class="dim">{line}</p>' for line in others)
        parts = [self._filmed()] if self.film else []
        if self.metric is not None:
            curve = self.curves[self.metric]
            points = list(zip(curve.frames.tolist(), curve.values.tolist(), strict=True))
            parts.insert(0, line_chart(points, self.metric))
        whole = self.times.get("step", 0.0)
        cells = [
            (f"{'  ' * row.depth}{escape(row.label)}", f"{row.seconds:,.2f} s", f"{share:.1%}")
            for row in time_rows(self.times)
            for share in [row.seconds / whole]
            if share > _LEAST
        ]
        parts.append(rows(cells))
        return as_output(f'{body}<div class="row">{"".join(parts)}</div>')

    def _filmed(self) -> str:
        """Return a film of the best saved policy, or the reason why there is none."""
        from .gallery.film import encode, film_policies
        from .gallery.recording import View

        if not (policies := list_policies(self.run)):
            return ""
        policy = best_policy(policies) or policies[-1]
        try:
            film = film_policies([policy], view=View(seconds=_SECONDS), trust=self.trust)
        except USER_ERRORS as error:
            return f'<p class="dim">{escape(printable(error))}</p>'
        data = b64encode(encode(film)).decode()
        return f'<figure><img alt="the policy" src="data:image/webp;base64,{data}"></figure>'


def view(run: Any, metric: str | None = None, *, film: bool = True, trust: bool = False) -> RunView:
    """Show what a run did: its status, curve, times, and a film of its best saved policy.

    Args:
        run: Its directory, or a trainer or an algorithm that has one.
        metric: The metric of the curve; by default ``eval/return``, else ``train/return``, else
            the first loss.
        film: Whether a notebook shows a film, for which the policy is played. Policies are saved
            with ``snapshots``.
        trust: Whether to run the code that the film's environment needs, if that is not installed.

    Returns:
        An object that a notebook shows as HTML, and ``print`` as text.

    Raises:
        ConfigError: If the run has no directory, or no such metric.
        NotFoundError: If the directory holds no run.
    """
    place = run
    if not isinstance(run, (str, os.PathLike)):
        place = getattr(run, "run_dir", None)
        if (checkpoints := getattr(run, "checkpoints", None)) is not None:
            place = checkpoints.directory.parent
        if place is None:
            raise ConfigError(
                f"{run!r:.80} has no directory: train it with a run_dir, or pass a directory."
            )
    directory = RunDir(place)
    if not directory.holds_run:
        raise NotFoundError(no_run(Path(place)))
    curves = read_curves(directory)
    wanted = ["eval/return", "train/return", *(name for name in curves if name.startswith("loss/"))]
    if metric is not None and metric not in curves:
        near = did_you_mean(metric, curves) or f" It has {listed(sorted(curves), 40) or 'none'}."
        raise ConfigError(f"{directory.path} has no metric {metric!r}.{near}")
    shown = metric or next((name for name in wanted if name in curves), None)
    summary = summarize(directory, metric=None)
    return RunView(directory, summary, shown, curves, _times(curves, summary.seconds), film, trust)


def _times(curves: Mapping[str, Curve], seconds: float) -> dict[str, float]:
    """Return the seconds by phase: the windows' seconds per batch, weighted by their frames."""
    if not seconds or (step := curves.get("time/step")) is None:
        return {}
    weights = dict(zip(step.frames.tolist(), np.diff(step.frames, prepend=0).tolist(), strict=True))
    spent = {
        name.removeprefix("time/"): sum(
            value * weights.get(frames, 0)
            for frames, value in zip(curve.frames.tolist(), curve.values.tolist(), strict=True)
        )
        for name, curve in curves.items()
        if name.startswith("time/") and name != "time/fps"
    }
    whole = spent["step"] or 1.0
    return {name: seconds * weighted / whole for name, weighted in spent.items()}
