"""The report as a page: curves, estimates, comparisons, profiles, all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from ...base.words import listed, plural
from ...statistics import Curve, curve_interval
from ..chart import MOST_SHADED, figure, key
from ..curves import Band
from ..html import Html, document, table
from .analysis import SCORE_TEXTS, Section, comparisons_table, estimates_table
from .study import Study, TaskStudy

_POINTS = 60


def report_page(
    study: Study, sections: Sequence[Section], score: str, branches: Sequence[str] = ()
) -> str:
    """Return the report as HTML; ``score`` is a name of `SCORES`, ``branches`` a tree of runs."""
    title = f"Report: {listed([task.task or 'runs' for task in study.tasks], most=3)}"
    less = " (less is better)" if study.minimize else ""
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(study.metric)}{less}, {SCORE_TEXTS[score]}. The seed is the unit: "
        "the episodes of an evaluation are averaged first. IQM is the interquartile mean. In "
        "brackets are 95 % intervals; [-] is where the seeds are too few for one.</p>",
    ]
    by_task = {task.task: task for task in study.tasks}
    for section in sections:
        body += _section(section, by_task.get(section.task), study.metric)
    if branches:
        body += ["<h2>Branches</h2>", f"<pre>{escape(chr(10).join(branches))}</pre>"]
    if reasons := study.reasons():
        body += ["<h2>Left out</h2>", table(["why", "runs"], list(reasons.items()))]
    return document(title, body)


def _section(section: Section, task: TaskStudy | None, metric: str) -> list[str]:
    frames = "" if section.frames is None else f" at {section.frames:,.0f} {section.unit}"
    parts = [f"<h2>{escape(section.task or 'runs')}{frames}</h2>"]
    if task is not None:
        parts.append(_curves(section, task, metric))
    parts.append(_groups(section))
    parts += [f"<p>{escape(note[:1].upper() + note[1:])}.</p>" for note in section.notes]
    parts += [_comparisons(section), _profiles(section)]
    if task is not None:
        parts.append(_seeds(section, task))
    return parts


def _curves(section: Section, task: TaskStudy, metric: str) -> str:
    """Draw interquartile means over frames, with pointwise intervals."""
    drawn, bands = [], []
    for group in section.groups:
        seeds = task.groups[group.group]
        drawn.append((group.group, [(f"seed {seed}", one.curve) for seed, one in seeds.items()]))
        bands.append(_band([one.curve for one in seeds.values()], task.frames))
    shaded = f"; shaded are 95 % intervals, each for its own {section.unit}; thin lines are seeds"
    return figure(
        drawn,
        bands,
        f"{escape(metric)} over {section.unit}: interquartile means over seeds"
        f"{shaded * (len(bands) <= MOST_SHADED)}.",
    )


def _band(curves: Sequence[Curve], frames: float) -> Band:
    grid = np.linspace(max(float(curve.frames[0]) for curve in curves), frames, _POINTS)
    stack = np.stack([np.interp(grid, curve.frames, curve.values) for curve in curves])
    return Band(grid, *curve_interval(stack), len(curves))


def _groups(section: Section) -> str:
    heads, rows = estimates_table(section)
    rows = [[*row[:-1], Html(key(number, row[-1]))] for number, row in enumerate(rows)]
    return table(heads, rows, numbers=heads[:-1])


def _comparisons(section: Section) -> str:
    heads, rows = comparisons_table(section)
    if not rows:
        return ""
    separated = sum(one.separated for one in section.comparisons)
    return (
        f"<h3>Comparisons</h3><p>{separated} of {plural(len(rows), 'pair')} separated. Differences "
        "are of the first that is named; P is its probability to do better.</p>"
        f"{table(heads, rows, numbers=heads[:-1])}"
    )


def _profiles(section: Section) -> str:
    if any(not np.ptp(group.profile.values) for group in section.groups):
        return ""
    bands = []
    for group in section.groups:
        profile = group.profile
        ends = (profile.low, profile.high) if group.iqm.refused is None else (profile.share,) * 2
        bands.append(Band(profile.values, profile.share, *ends, len(group.seeds)))
    return "<h3>Performance profile</h3>" + figure(
        [(group.group, []) for group in section.groups],
        bands,
        f"The share of seeds that score {'less' if section.minimize else 'more'}, over scores"
        f"{'; shaded are 95 % intervals' * (len(bands) <= MOST_SHADED)}.",
    )


def _seeds(section: Section, task: TaskStudy) -> str:
    rows = [
        [
            f"{score:,.6g}",
            str(seed) if isinstance(seed, int) else "",
            group.group,
            str(task.groups[group.group][seed].path),
        ]
        for group in section.groups
        for seed, score in zip(group.seeds, group.scores[:, 0], strict=True)
    ]
    heads = ["score", "seed", "group", "run"]
    made = table(heads, rows, numbers=heads[:2])
    return f"<details><summary>Every seed</summary>{made}</details>"
