"""The analysis of a report: estimates with intervals, comparisons, times to a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...base.words import duration
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
from .study import Seed, SeedCurve, Study, TaskStudy

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
    sections, less = [], study.minimize
    for task in study.tasks:
        tables = {
            name: _Tables.of_task(task, seeds, score, less) for name, seeds in task.groups.items()
        }
        level = task.threshold if threshold is None else threshold
        reached = {name: _reached(task, level, seeds, less) for name, seeds in task.groups.items()}
        sections.append(
            _section(
                task.task,
                task.frames,
                level,
                tables,
                reached,
                against,
                _notes(decision),
                decision,
                minimize=less,
            )
        )
    if len(study.tasks) > 1:
        sections += _all_tasks(study, score, references or {}, against)
    return sections


@dataclass(frozen=True)
class _Tables:
    """The scores and areas of a group, each ``[seeds, tasks]``."""

    seeds: Sequence[Seed]
    scores: Scores
    areas: Scores

    @classmethod
    def of_task(
        cls, task: TaskStudy, seeds: Mapping[Seed, SeedCurve], score: str, minimize: bool
    ) -> _Tables:
        names = _in_order(seeds)
        curves = [seeds[seed].curve for seed in names]
        scores, areas = (
            np.array([[one(curve, task.frames)] for curve in curves])
            for one in (score_function(score, minimize=minimize), score_function("area"))
        )
        return cls(names, scores, areas)


def _section(
    name: str,
    frames: float | None,
    threshold: float | None,
    tables: Mapping[str, _Tables],
    reached: Mapping[str, tuple[TimeToThreshold, TimeToThreshold] | None],
    against: str | None,
    notes: list[str],
    decision: Decision | None = None,
    *,
    minimize: bool = False,
) -> Section:
    everything = np.concatenate([table.scores.ravel() for table in tables.values()])
    grid = np.linspace(everything.min(), everything.max(), _PROFILE_POINTS)
    groups = [
        GroupResult(
            group=group,
            seeds=table.seeds,
            scores=table.scores,
            iqm=interval(table.scores, "iqm"),
            mean=interval(table.scores, "mean"),
            median=interval(table.scores, "median"),
            area=interval(table.areas, "iqm"),
            frames_to_threshold=times[0] if (times := reached.get(group)) else None,
            seconds_to_threshold=times[1] if times else None,
            profile=performance_profile(table.scores, grid, minimize=minimize),
        )
        for group, table in tables.items()
    ]
    groups.sort(key=lambda group: group.iqm.value, reverse=not minimize)
    pairs = list(combinations([group.group for group in groups], 2))
    if against is not None:
        pairs = [pair for pair in pairs if against in pair]
    scores = {group: table.scores for group, table in tables.items()}
    comparisons = compare(scores, pairs, decision, minimize=minimize)
    notes = notes + list(dict.fromkeys(g.iqm.refused for g in groups if g.iqm.refused))
    return Section(name, frames, threshold, groups, comparisons, notes, minimize)


def _notes(decision: Decision | None) -> list[str]:
    """Return notes on a sequential decision."""
    if decision is None:
        return []
    if decision.best is None:
        return [f"not decided with {decision.seeds} seeds each"]
    return [
        f"decided with {decision.seeds} seeds each; a difference that is found early is likely "
        "smaller than it looks"
    ]


def _reached(
    task: TaskStudy, threshold: float | None, seeds: Mapping[Seed, SeedCurve], minimize: bool
) -> tuple[TimeToThreshold, TimeToThreshold] | None:
    """Return frames and seconds to a threshold; a seed that did not reach it is censored."""
    if threshold is None:
        return None
    frames, seconds, events = [], [], []
    for seed in seeds.values():
        at = first_reached(seed.curve, threshold, task.frames, minimize=minimize)
        end = task.frames if at is None else at
        frames.append(end)
        seconds.append(float(np.interp(end, seed.seconds.frames, seed.seconds.values)))
        events.append(at is not None)
    return time_to_reach(frames, events, horizon=task.frames), time_to_reach(seconds, events)


def _all_tasks(
    study: Study, score: str, references: Mapping[str, Reference], against: str | None
) -> list[Section]:
    missing = [task.task for task in study.tasks if task.task not in references]
    if missing:
        return []
    groups = [name for name in study.tasks[0].groups if all(name in t.groups for t in study.tasks)]
    tables, notes = {}, []
    for name in groups:
        parts = [task.groups[name] for task in study.tasks]
        seeds = [seed for seed in parts[0] if all(seed in part for part in parts)]
        left = sum(len(part) - len(seeds) for part in parts)
        if left:
            notes.append(f"{name}: {left} runs of seeds that not all tasks have are not counted")
        if seeds:
            tables[name] = _normalized(study, name, seeds, score, references)
    if not tables:
        return []
    return [_section(ALL_TASKS, None, None, tables, {}, against, notes)]


def _in_order(seeds: Iterable[Seed]) -> list[Seed]:
    return sorted(seeds, key=lambda seed: (isinstance(seed, str), seed))


def _normalized(
    study: Study,
    group: str,
    seeds: Sequence[Seed],
    score: str,
    references: Mapping[str, Reference],
) -> _Tables:
    columns = []
    for task in study.tasks:
        shared = {seed: task.groups[group][seed] for seed in seeds}
        table = _Tables.of_task(task, shared, score, study.minimize)
        normalize = partial(references[task.task].normalize, minimize=study.minimize)
        columns.append((normalize(table.scores), normalize(table.areas)))
    scores, areas = (np.concatenate(part, axis=1) for part in zip(*columns, strict=True))
    return _Tables(_in_order(seeds), scores, areas)


SCORE_TEXTS: Final = {
    "last": "at the last frames that all have",
    "tail": "the mean of the last tenth of the frames",
    "best": "the best evaluation",
    "area": "the area under the curve, as a mean over frames",
}
"""What each name of `SCORES` stands for."""
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


def estimate_texts(section: Section, group: GroupResult) -> list[str]:
    """Format interquartile mean, seeds, median, mean and area; with a threshold, times to it."""
    iqm, *others = map(interval_text, (group.iqm, group.median, group.mean, group.area))
    texts = [iqm, str(len(group.seeds)), *others]
    if section.threshold is None:
        return texts
    if (frames := group.frames_to_threshold) is None:
        return [*texts, "", "", ""]
    return [
        *texts,
        f"{frames.reached} of {frames.seeds}",
        reaching_text(frames, lambda value: f"{value:,.0f}"),
        reaching_text(group.seconds_to_threshold, duration),
    ]


def comparison_texts(one: Comparison) -> list[str]:
    """Format difference, probability of improvement and p-values."""
    return [
        interval_text(one.difference),
        interval_text(one.improvement),
        NONE if one.p is None else f"{one.p:.2g}",
        NONE if one.corrected is None else f"{one.corrected:.2g}",
    ]


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
    need = seeds_to_separate(a, b, error=ERROR / comparisons)
    if need is None:
        return f"{first} and {second} are not told apart, and 1,000 seeds would hardly do it"
    more = max(1, need - have)
    return f"about {more} more seed{'s' * (more != 1)} each would separate {first} from {second}"
