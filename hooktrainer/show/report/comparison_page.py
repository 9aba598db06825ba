"""The comparison page: curves with mean and spread over seeds, and what led to them.

One HTML file that needs nothing but itself: the charts are drawn in it, and it opens offline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import mean, stdev

import numpy as np

from ...store.run_dir import RunDir
from ..chart import COLORS, chart_for_any_screen
from ..curves import Band, Curve, band, read_curves
from ..html import document, table
from .grouping import Group, configuration, differing
from .summary import RunSummary


def comparison_page(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    """Write the page.

    Args:
        groups: What is compared, at least one.
        metrics: The metrics to draw; the first one is in the tables too.

    Returns:
        HTML.
    """
    runs = [run for group in groups for run in group.runs]
    curves = {run.path: read_curves(RunDir(run.path), metrics) for run in runs}
    figures = [_figure(groups, metric, curves) for metric in metrics]
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    body = [
        f"<h1>{escape(_title(groups))}</h1>",
        f"<p>{count} in {len(groups)} group{'s' * (len(groups) != 1)}. Lines are means over the "
        "runs of a group, as far as all of them went; shaded is one standard deviation; thin lines "
        "are single runs.</p>",
        *(f"<p>{escape(repeat_note(*pair))}</p>" for group in groups for pair in group.repeats),
        *filter(None, figures),
        "<h2>Groups</h2>",
        _groups_table(groups, metrics[0]),
        "<h2>Runs</h2>",
        _runs_table(groups, metrics[0]),
    ]
    return document(_title(groups), body)


def repeat_note(run: RunSummary, counted: RunSummary) -> str:
    """Say that a run is not counted, since another has its seed and options."""
    what = "is a copy of" if run.id and run.id == counted.id else "has the seed and options of"
    return f"{run.path} {what} {counted.path}, which is counted in its place."


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation, such as ``471 ± 22``; empty if there are none."""
    if not values:
        return ""
    deviation = stdev(values) if len(values) > 1 else 0.0
    if not deviation:
        text = f"{mean(values):,.6g}" if abs(mean(values)) < 1e6 else f"{mean(values):,.0f}"
        return f"{text} ± 0" if len(values) > 1 else text
    decimals = max(0, 1 - math.floor(math.log10(deviation)))  # two digits of the deviation
    return f"{mean(values):,.{decimals}f} ± {deviation:,.{decimals}f}"


def _title(groups: Sequence[Group]) -> str:
    names = dict.fromkeys(run.experiment for group in groups for run in group.runs)
    return ", ".join(filter(None, names)) or "runs"


def _figure(groups: Sequence[Group], metric: str, curves: dict) -> str:  # type: ignore[type-arg]
    drawn: list[tuple[str, list[tuple[str, Curve]]]] = []
    for group in groups:
        members = [(str(r.path), curves[r.path].get(metric, Curve.of([]))) for r in group.runs]
        drawn.append((group.label, [(name, c) for name, c in members if len(c.values)]))
    having = [members for _, members in drawn if members]
    if not having:
        return f"<h2>{escape(metric)}</h2><p>No run has logged it.</p>"
    # A group without the metric keeps its colour: it is drawn as nothing.
    keys, kept, bands = [], [], []
    for number, (label, members) in enumerate(drawn):
        kept.append((label, members))
        bands.append(band([curve for _, curve in members]) if members else _NOTHING)
        if members:
            seeds = f" ({len(members)} runs)" if len(members) > 1 else ""
            keys.append(f'<span class="key c{number % COLORS}">{escape(label)}{seeds}</span>')
    return (
        f"<h2>{escape(metric)}</h2><figure>{''.join(keys)}{chart_for_any_screen(kept, bands)}"
        "<figcaption>environment frames →</figcaption></figure>"
    )


_NOTHING = Band.around(np.empty(0), np.empty(0), count=0)


def _groups_table(groups: Sequence[Group], metric: str) -> str:
    heads = ["group", "runs", f"last {metric}", f"best {metric}", "frames", "seconds"]
    return table(heads, [_group_row(group) for group in groups], numbers=heads[1:])


def _group_row(group: Group) -> list[str]:
    best = [run.best for run in group.runs if run.best is not None]
    return [
        group.label,
        f"{len(group.runs)}",
        spread(group.finals()),
        spread(best),
        spread([float(run.frames) for run in group.runs]),
        spread([run.seconds for run in group.runs]),
    ]


def _runs_table(groups: Sequence[Group], metric: str) -> str:
    runs = [run for group in groups for run in group.runs]
    options = differing(runs)
    heads = ["run", "seed", "status", "frames", "seconds", f"last {metric}", "best", *options]
    rows = []
    for run in runs:
        config = configuration(run)
        rows.append(
            [
                str(run.path),
                "" if run.seed is None else str(run.seed),
                run.status,
                f"{run.frames:,}",
                f"{run.seconds:,.1f}",
                "" if run.last is None else f"{run.last:.6g}",
                "" if run.best is None else f"{run.best:.6g}",
                *(str(config.get(name, "")) for name in options),
            ]
        )
    return table(heads, rows, numbers=[name for name in heads if name not in ("run", "status")])
