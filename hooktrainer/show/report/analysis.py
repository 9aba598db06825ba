"""The analysis of a report: estimates with intervals, comparisons, times to a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...base.words import duration, listed, plural
from ...errors import ConfigError
from ...statistics import (
    Decision,
    Interval,
    Profile,
    Reference,
    TimeToThreshold,
    difference,
    first_reached,
    holm,
    interval,
    performance_profile,
    permutation_test,
    probability_of_improvement,
    score_function,
    seeds_to_separate,
    time_to_reach,
)
from .study import Seed, Study, TaskStudy

ALL_TASKS = "all tasks, normalized"
_PROFILE_POINTS = 60
Scores = NDArray[np.float64]
"""``[seeds, tasks]``."""


@dataclass(frozen=True)
class GroupResult:
    """The results of a group.

    `seeds` are, with several tasks, those that every task has; `scores` is ``[seeds, tasks]``;
    `area` the interquartile mean of the areas under the curves, as means over frames.
    """

    group: str
    seeds: Sequence[Seed]
    scores: Scores
    iqm: Interval
    mean: Interval
    median: Interval
    area: Interval
    frames_to_threshold: TimeToThreshold | None
    seconds_to_threshold: TimeToThreshold | None
    profile: Profile


@dataclass(frozen=True)
class Section:
    """The results of a task, or of all tasks together, whose `frames` are ``None``.

    `groups` are by interquartile mean, the best first; `threshold` is the return that counts as
    solved. Less is never better of normalized scores.
    """

    task: str
    frames: float | None
    threshold: float | None
    groups: Sequence[GroupResult]
    comparisons: Sequence[Comparison]
    notes: Sequence[str]
    minimize: bool = False
    unit: str = "frames"


def analyze(
    study: Study,
    *,
    score: str = "last",
    threshold: float | None = None,
    references: Mapping[str, Reference] | None = None,
    against: str | None = None,
    decision: Decision | None = None,
) -> list[Section]:
    """Return the results of each task, and of all together if there are several.

    ``score`` is a name of `SCORES`; ``threshold`` by default the return at which a task's runs
    stop; ``references`` normalize the scores of tasks. All pairs of groups are compared, or all
    groups with ``against``; they are tested, unless seeds were added until a ``decision`` was made.
    """
    known = {name for task in study.tasks for name in task.groups}
    if against is not None and against not in known:
        raise ConfigError(f"there is no group {against!r}; there are {', '.join(sorted(known))}.")
    sections = []
    for task in study.tasks:
        level = task.threshold if threshold is None else threshold
        tables = {name: _tables([task], name, score, study.minimize) for name in task.groups}
        times = {name: _reached(task, level, name, study.minimize) for name in task.groups}
        groups = _estimated(tables, times, study.minimize)
        section = Section(task.task, task.frames, level, groups, [], [], study.minimize, task.unit)
        sections.append(_compared(section, against, decision))
    if len(sections) > 1 and all(task.task in (references or {}) for task in study.tasks):
        sections += _all_tasks(study, score, references or {}, against)
    return sections


_Tables = tuple[list[Seed], Scores, Scores]
"""The seeds of a group that all tasks have, their scores and areas, each ``[seeds, tasks]``."""


def _tables(
    tasks: Sequence[TaskStudy],
    group: str,
    score: str,
    minimize: bool,
    references: Mapping[str, Reference] | None = None,
) -> _Tables:
    shared = set.intersection(*(set(task.groups[group]) for task in tasks))
    seeds = sorted(shared, key=lambda seed: (isinstance(seed, str), seed))

    def column(task: TaskStudy, name: str) -> Scores:
        function = score_function(name, minimize=minimize and name != "area")
        curves = [task.groups[group][seed].curve for seed in seeds]
        values = np.array([function(curve, task.frames) for curve in curves])
        if references is None:
            return values
        return references[task.task].normalize(values, minimize=minimize)

    scores, areas = (
        np.stack([column(task, name) for task in tasks], axis=1) for name in (score, "area")
    )
    return seeds, scores, areas


def _estimated(
    tables: Mapping[str, _Tables],
    times: Mapping[str, tuple[TimeToThreshold, TimeToThreshold] | None],
    minimize: bool = False,
) -> list[GroupResult]:
    """Return the results of groups, the best first."""
    everything = np.concatenate([scores.ravel() for _, scores, _ in tables.values()])
    grid = np.linspace(everything.min(), everything.max(), _PROFILE_POINTS)
    groups = []
    for group, (seeds, scores, areas) in tables.items():
        frames, seconds = times.get(group) or (None, None)
        profile = performance_profile(scores, grid, minimize=minimize)
        iqm, mean, median = (interval(scores, name) for name in ("iqm", "mean", "median"))
        estimates = (iqm, mean, median, interval(areas, "iqm"))
        groups.append(GroupResult(group, seeds, scores, *estimates, frames, seconds, profile))
    return sorted(groups, key=lambda group: group.iqm.value, reverse=not minimize)


def _compared(section: Section, against: str | None, decision: Decision | None = None) -> Section:
    """Return a section with the comparisons of its groups and further notes."""
    scores = {group.group: group.scores for group in section.groups}
    pairs = [pair for pair in combinations(scores, 2) if against is None or against in pair]
    notes = [*section.notes]
    if decision is not None:
        early = "; a difference that is found early is likely smaller than it looks"
        which = "not decided" if decision.best is None else "decided"
        notes.append(f"{which} with {decision.seeds} seeds each{early * (which == 'decided')}")
    notes += dict.fromkeys(one.iqm.refused for one in section.groups if one.iqm.refused)
    comparisons = compare(scores, pairs, decision, minimize=section.minimize)
    return replace(section, comparisons=comparisons, notes=notes)


def _reached(
    task: TaskStudy, threshold: float | None, group: str, minimize: bool
) -> tuple[TimeToThreshold, TimeToThreshold] | None:
    """Return frames and seconds to a threshold; a seed that did not reach it is censored."""
    if threshold is None:
        return None
    frames, seconds, events = [], [], []
    for seed in task.groups[group].values():
        at = first_reached(seed.curve, threshold, task.frames, minimize=minimize)
        end = task.frames if at is None else at
        frames.append(end)
        seconds.append(float(np.interp(end, seed.seconds.frames, seed.seconds.values)))
        events.append(at is not None)
    return time_to_reach(frames, events, horizon=task.frames), time_to_reach(seconds, events)


def _all_tasks(
    study: Study, score: str, references: Mapping[str, Reference], against: str | None
) -> list[Section]:
    tables, notes = {}, []
    for name in dict.fromkeys(name for task in study.tasks for name in task.groups):
        if without := [task.task for task in study.tasks if name not in task.groups]:
            notes.append(f"{name} is left out: it has no runs of {listed(without)}")
            continue
        table = _tables(study.tasks, name, score, study.minimize, references)
        left = sum(len(task.groups[name]) - len(table[0]) for task in study.tasks)
        if left:
            notes.append(f"{name}: {left} runs of seeds that not all tasks have are not counted")
        if table[0]:
            tables[name] = table
    if not tables:
        return []
    section = Section(ALL_TASKS, None, None, _estimated(tables, {}), [], notes)
    return [_compared(section, against)]


SCORE_TEXTS: Final = {
    "last": "at the last frames that all have",
    "tail": "the mean of the last tenth of the frames",
    "best": "the best evaluation",
    "area": "the area under the curve, as a mean over frames",
}
"""The meaning of each name of `SCORES`."""
NONE = "-"


def interval_text(one: Interval) -> str:
    """Format an estimate and its interval, such as ``471 [455, 482]``; ``[-]`` without one.

    Has one digit more than the interval determines.
    """
    if one.low is None or one.high is None:
        return (
            f"{one.value:,.4g} [{NONE}]" if abs(one.value) < 1e4 else f"{one.value:,.0f} [{NONE}]"
        )
    width = one.high - one.low
    if width <= 0:
        return f"{one.value:,.6g} [{one.low:,.6g}, {one.high:,.6g}]"
    decimals = max(0, 1 - math.floor(math.log10(width)))
    return f"{one.value:,.{decimals}f} [{one.low:,.{decimals}f}, {one.high:,.{decimals}f}]"


def estimates_table(section: Section) -> tuple[list[str], list[list[str]]]:
    """Return the heads and, by group, the texts of its estimates, its name last."""
    heads = ["IQM", "seeds", "median", "mean", "area"]
    if section.threshold is not None:
        heads += [f"reached {section.threshold:g}", f"{section.unit} until then", "time until then"]
    rows = []
    for group in section.groups:
        iqm, *others = map(interval_text, (group.iqm, group.median, group.mean, group.area))
        texts = [iqm, str(len(group.seeds)), *others]
        if (frames := group.frames_to_threshold) is not None:
            texts += [
                f"{frames.reached} of {frames.seeds}",
                reaching_text(frames, lambda value: f"{value:,.0f}"),
                reaching_text(group.seconds_to_threshold, duration),
            ]
        rows.append([*texts, *[""] * (len(heads) - len(texts)), group.group])
    return [*heads, "group"], rows


def comparisons_table(section: Section) -> tuple[list[str], list[list[str]]]:
    """Return the heads and, by comparison, the difference, its tests and the verdict."""
    heads = ["IQM difference", "P(improvement)", "p", "corrected", "so"]
    return heads, [[*comparison_texts(one), one.verdict] for one in section.comparisons]


def comparison_texts(one: Comparison) -> list[str]:
    """Format difference, probability of improvement and p-values."""
    p_values = [NONE if p is None else f"{p:.2g}" for p in (one.p, one.corrected)]
    return [interval_text(one.difference), interval_text(one.improvement), *p_values]


def reaching_text(one: TimeToThreshold | None, shown: Callable[[float], str]) -> str:
    """Format the median time to a threshold and its interval."""
    if one is None or one.reached == 0:
        return NONE
    middle = f"over {shown(one.horizon)}" if one.median is None else shown(one.median)
    if one.low is None:
        return middle
    return f"{middle} [{shown(one.low)}, {'…' if one.high is None else shown(one.high)}]"


ERROR: Final = 0.05
"""The probability of a false finding over all comparisons."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of two groups: the difference of their interquartile means and its test.

    `p` is ``None`` where seeds were added until it was decided, since a test for a fixed number of
    seeds is invalid then; `corrected` is for the number of comparisons, and `separated` at an error
    of 5 % over all of them.
    """

    first: str
    second: str
    difference: Interval
    improvement: Interval
    p: float | None
    corrected: float | None
    separated: bool
    verdict: str


def compare(
    scores: Mapping[str, Scores],
    pairs: Sequence[tuple[str, str]],
    decision: Decision | None = None,
    *,
    minimize: bool = False,
) -> list[Comparison]:
    """Compare pairs of groups, with a 5 % error over all pairs; separated pairs come first.

    By default each pair is tested; ``decision`` has the result if seeds were added until it was
    made.
    """
    p_values: Sequence[float | None] = [None] * len(pairs)
    corrected = p_values
    if decision is None:
        found = [permutation_test(scores[first], scores[second]) for first, second in pairs]
        p_values, corrected = found, holm(found)
    made = []
    for (first, second), p, p_holm in zip(pairs, p_values, corrected, strict=True):
        a, b = scores[first], scores[second]
        wins = probability_of_improvement(a, b, minimize=minimize)
        if decision is not None:
            better = next((one for one in decision.better if set(one) == {first, second}), None)
        elif p_holm is not None and p_holm < ERROR:
            better = (first, second) if wins.value > 0.5 else (second, first)
        else:
            better = None
        made.append(
            Comparison(
                first=first,
                second=second,
                difference=difference(a, b),
                improvement=wins,
                p=p,
                corrected=p_holm,
                separated=better is not None,
                verdict=_open(first, second, a, b, len(pairs))
                if better is None
                else f"{better[0]} is better than {better[1]}",
            )
        )
    return sorted(made, key=lambda one: not one.separated)


def _open(first: str, second: str, a: Scores, b: Scores, comparisons: int) -> str:
    """Return the verdict for two groups that are not separated."""
    have = min(len(a), len(b))
    if have < 2:
        return f"{first} and {second} are not separated: one seed shows no spread"
    need = seeds_to_separate(a, b, error=ERROR / comparisons)
    if need is None:
        return f"{first} and {second} are not separated, and 1,000 seeds would hardly do it"
    more = max(1, need - have)
    return f"about {plural(more, 'more seed')} each would separate {first} from {second}"
