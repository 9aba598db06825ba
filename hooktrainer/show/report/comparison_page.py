"""The comparison page: curves with mean and spread over seeds, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import mean, stdev

import numpy as np

from ...base.words import listed, plural
from ...store.run_dir import RunDir
from ..chart import figure, key
from ..curves import Band, Curve, band, read_curves
from ..html import Html, document, folded, spread_text, table
from .grouping import Group
from .summary import RunSummary


def comparison_page(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    """Return the comparison page as HTML; the first metric is in the tables too."""
    runs = [run for group in groups for run in group.runs]
    curves = {run.path: read_curves(RunDir(run.path), metrics) for run in runs}
    figures = [_figure(groups, metric, curves) for metric in metrics]
    body = [
        f"<h1>{escape(_title(groups))}</h1>",
        f"<p>{plural(len(runs), 'run')} in {plural(len(groups), 'group')}. Lines are means over "
        "the runs of a group, as far as all of them went. Where groups are few, one standard "
        "deviation is shaded, and thin lines are runs.</p>",
        *filter(None, figures),
        "<h2>Groups</h2>",
        _groups_table(groups, metrics[0]),
        folded("Runs", _runs_table(groups, metrics[0])),
    ]
    return document(_title(groups), body)


def repeat_note(run: RunSummary, counted: RunSummary) -> str:
    """Explain why a run is not counted: another has its seed and options."""
    what = "is a copy of" if run.id and run.id == counted.id else "has the seed and options of"
    return f"{what} {counted.path}, which is counted in its place"


def spread(values: Sequence[float]) -> str:
    """Format mean and sample standard deviation, such as ``471 ± 22``; empty without values."""
    if not values:
        return ""
    return spread_text(mean(values), stdev(values) if len(values) > 1 else None)


def _title(groups: Sequence[Group]) -> str:
    names = dict.fromkeys(run.experiment for group in groups for run in group.runs)
    return listed(filter(None, names), most=3) or "runs"


def _figure(groups: Sequence[Group], metric: str, curves: dict) -> str:  # type: ignore[type-arg]
    drawn: list[tuple[str, list[tuple[str, Curve]]]] = []
    for group in groups:
        members = [(str(r.path), curves[r.path].get(metric, Curve.of([]))) for r in group.runs]
        drawn.append((group.label, [(name, c) for name, c in members if len(c.values)]))
    having = [members for _, members in drawn if members]
    if not having:
        return f"<h2>{escape(metric)}</h2><p>No run has logged it.</p>"
    # A group without the metric is drawn as nothing, so that it keeps its place in the legend.
    bands = [band([curve for _, curve in own]) if own else _NOTHING for _, own in drawn]
    return f"<h2>{escape(metric)}</h2>{figure(drawn, bands, 'environment frames →')}"


_NOTHING = Band.around(np.empty(0), np.empty(0), count=0)


def _groups_table(groups: Sequence[Group], metric: str) -> str:
    heads = [f"last {metric}", f"best {metric}", "runs", "frames", "seconds"]
    rows = [
        [
            spread(group.finals()),
            spread([run.best for run in group.runs if run.best is not None]),
            f"{len(group.runs)}",
            spread([float(run.frames) for run in group.runs]),
            spread([run.seconds for run in group.runs]),
            Html(key(number, group.label)),
        ]
        for number, group in enumerate(groups)
    ]
    return table([*heads, "group"], rows, numbers=heads)


def _runs_table(groups: Sequence[Group], metric: str) -> str:
    heads = [f"last {metric}", "best", "frames", "seconds", "seed"]
    rows = [
        [
            "" if run.last is None else f"{run.last:.6g}",
            "" if run.best is None else f"{run.best:.6g}",
            f"{run.frames:,}",
            f"{run.seconds:,.1f}",
            "" if run.seed is None else str(run.seed),
            run.status,
            group.label,
            str(run.path),
        ]
        for group in groups
        for run in group.runs
    ]
    return table([*heads, "status", "group", "run"], rows, numbers=heads)
