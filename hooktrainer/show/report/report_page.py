"""The report as a page: curves, estimates, comparisons, profiles, every seed.

One HTML file that needs nothing but itself and opens offline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from ...base.words import duration, plural
from ...statistics import Curve, curve_interval
from ..chart import COLORS, chart_for_any_screen
from ..curves import Band
from ..html import document, table
from .findings import GroupFinding, Section
from .interval_text import comparison_texts, interval_text, reaching_text
from .study import Seed, SeedCurve, Study, TaskStudy

_POINTS = 60


def report_page(study: Study, sections: Sequence[Section], score: str) -> str:
    """Write the page.

    Args:
        study: The runs.
        sections: What was found.
        score: What each run was scored by.

    Returns:
        HTML.
    """
    title = "Report: " + ", ".join(
        dict.fromkeys(name for task in study.tasks for name in task.groups)
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(study.metric)}{_direction(study)}, {_SCORES[score]}. The seed is the unit: "
        "the episodes of an evaluation are averaged first. In brackets are 95 % intervals; [-] is "
        "where the seeds are too few for one.</p>",
    ]
    by_task = {task.task: task for task in study.tasks}
    for section in sections:
        body += _section(section, by_task.get(section.task), study.metric)
    if study.left_out:
        body.append("<h2>Left out</h2>")
        body.append(table(["run", "why"], [[str(path), why] for path, why in study.left_out]))
    return document(title, body)


def _direction(study: Study) -> str:
    return " (less is better)" if study.minimize else ""


_SCORES = {
    "last": "at the last frames that all have",
    "tail": "the mean of the last tenth of the frames",
    "best": "the best evaluation",
    "area": "the area under the curve, as a mean over frames",
}


def _section(section: Section, task: TaskStudy | None, metric: str) -> list[str]:
    frames = "" if section.frames is None else f" at {section.frames:,.0f} frames"
    parts = [f"<h2>{escape(section.task or 'runs')}{frames}</h2>"]
    if task is not None:
        parts.append(_curves(section, task, metric))
    parts.append(_groups(section))
    parts += [f"<p>{escape(note)}.</p>" for note in section.notes]
    if section.comparisons:
        parts.append(_comparisons(section))
    parts.append(_profiles(section))
    if task is not None:
        parts.append(_seeds(section, task))
    return parts


def _key(number: int, label: str, count: int) -> str:
    name = f"{escape(label)} ({plural(count, 'seed')})"
    return f'<span class="key c{number % COLORS}">{name}</span>'


def _curves(section: Section, task: TaskStudy, metric: str) -> str:
    """Interquartile means over frames; shaded are their intervals, at each of the frames."""
    drawn, bands, keys = [], [], []
    for number, group in enumerate(section.groups):
        seeds = task.groups[group.group]
        drawn.append((group.group, _members(seeds)))
        bands.append(_band([one.curve for one in seeds.values()], task.frames))
        keys.append(_key(number, group.group, len(seeds)))
    return (
        f"<figure>{''.join(keys)}{chart_for_any_screen(drawn, bands)}<figcaption>{escape(metric)} "
        "over environment frames: interquartile means over seeds; shaded are 95 % intervals, each "
        "for its own frames; thin lines are seeds.</figcaption></figure>"
    )


def _members(seeds: Mapping[Seed, SeedCurve]) -> list[tuple[str, Curve]]:
    return [(f"seed {seed}", one.curve) for seed, one in seeds.items()]


def _band(curves: Sequence[Curve], frames: float) -> Band:
    grid = np.linspace(max(float(curve.frames[0]) for curve in curves), frames, _POINTS)
    stack = np.stack([np.interp(grid, curve.frames, curve.values) for curve in curves])
    return Band(grid, *curve_interval(stack), len(curves))


def _groups(section: Section) -> str:
    heads = ["group", "seeds", "interquartile mean", "median", "mean", "area under the curve"]
    timed = section.threshold is not None
    if timed:
        heads += [f"reached {section.threshold:g}", "frames until then", "time until then"]
    rows = []
    for group in section.groups:
        row = [group.group, str(len(group.seeds))]
        row += map(interval_text, (group.iqm, group.median, group.mean, group.area))
        if timed:
            row += _times(group)
        rows.append(row)
    return table(heads, rows, numbers=heads[1:])


def _times(group: GroupFinding) -> list[str]:
    frames = group.frames_to_threshold
    if frames is None:
        return ["", "", ""]
    return [
        f"{frames.reached} of {frames.seeds}",
        reaching_text(frames, lambda value: f"{value:,.0f}"),
        reaching_text(group.seconds_to_threshold, duration),
    ]


def _comparisons(section: Section) -> str:
    heads = ["group", "beside", "IQM difference", "P(improvement)", "p", "corrected", "so"]
    rows = [[*comparison_texts(one), one.verdict] for one in section.comparisons]
    return "<h3>Comparisons</h3>" + table(heads, rows, numbers=heads[2:6])


def _profiles(section: Section) -> str:
    if any(not np.ptp(group.profile.values) for group in section.groups):
        return ""
    bands = []
    for group in section.groups:
        profile = group.profile
        ends = (profile.low, profile.high) if group.iqm.refused is None else (profile.share,) * 2
        bands.append(Band(profile.values, profile.share, *ends, len(group.seeds)))
    keys = "".join(
        _key(number, group.group, len(group.seeds)) for number, group in enumerate(section.groups)
    )
    drawn = chart_for_any_screen([(group.group, []) for group in section.groups], bands)
    return (
        f"<h3>Performance profile</h3><figure>{keys}{drawn}<figcaption>the share of seeds that "
        f"score {'less' if section.minimize else 'more'}, over scores; shaded are 95 % intervals, "
        "each for its own score</figcaption></figure>"
    )


def _seeds(section: Section, task: TaskStudy) -> str:
    rows = [
        [group.group, str(seed), f"{score:,.6g}", str(task.groups[group.group][seed].path)]
        for group in section.groups
        for seed, score in zip(group.seeds, group.scores[:, 0], strict=True)
    ]
    heads = ["group", "seed", "score", "run"]
    return (
        f"<details><summary>Every seed</summary>{table(heads, rows, numbers=['score'])}</details>"
    )
