"""Curves of runs by task, group and seed, and the runs that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ...base.checks import TUNING_SEEDS
from ...base.endings import ENDED
from ...base.words import listed
from ...errors import ConfigError
from ...statistics import Curve, shared_frames
from ...store.run_dir import RunDir
from ..curves import read_curves
from .grouping import group_runs, repeat_note
from .summary import RunSummary, units_of

RETURN: Final = "eval/return"
"""The metric by which runs stop early."""

Seed = int | str
"""The seed of a run, or the path of a run without one."""


@dataclass(frozen=True)
class SeedCurve:
    """The scores of one seed over its frames, and its training time over frames.

    `ended` is whether the run stopped early by itself, for example because the task is solved.
    """

    path: Path
    curve: Curve
    ended: bool
    seconds: Curve


@dataclass(frozen=True)
class TaskStudy:
    """The runs of one task, an environment, by group label and seed.

    They are compared at `frames`, which count `unit`. `threshold` is the return at which all runs
    stop; ``None`` if they differ.
    """

    task: str
    frames: float
    groups: Mapping[str, Mapping[Seed, SeedCurve]]
    threshold: float | None
    unit: str = "frames"


@dataclass(frozen=True)
class Study:
    """The runs of a report by task; ``left_out`` has those that do not count, with the reason."""

    metric: str
    tasks: Sequence[TaskStudy]
    left_out: Sequence[tuple[Path, str]]
    minimize: bool = False

    def reasons(self) -> dict[str, str]:
        """Return the reasons for leaving runs out, each with its runs."""
        found: dict[str, list[Path]] = {}
        for path, why in self.left_out:
            found.setdefault(why, []).append(path)
        return {why: listed(paths, most=3) for why, paths in found.items()}


def read_study(
    runs: Sequence[RunSummary],
    metric: str = RETURN,
    *,
    minimize: bool = False,
    unfinished: bool = False,
    places: Sequence[Path] = (),
) -> Study:
    """Read the curves of runs, by task and group.

    ``unfinished`` runs may count; all are compared at the frames of the shortest. ``places`` are
    directories whose runs are groups; by default runs are grouped by their options.
    """
    left_out: list[tuple[Path, str]] = []
    counted: list[RunSummary] = []
    curves: dict[Path, Mapping[str, Curve]] = {}
    for run in runs:
        try:
            curves[run.path] = read_curves(RunDir(run.path), [metric, "time/fps"])
            why = _reason(run, metric, curves[run.path], unfinished)
        except ConfigError as error:  # its metrics.csv is damaged
            why = str(error)
        if why is None:
            counted.append(run)
        else:
            left_out.append((run.path, why))
    by_task: dict[str, list[RunSummary]] = {}
    for run in counted:
        by_task.setdefault(str(run.options.get("env") or ""), []).append(run)
    tasks = []
    for task, its in sorted(by_task.items()):
        groups: dict[str, dict[Seed, SeedCurve]] = {}
        for place, members in _by_place(its, places).items():
            its_groups = group_runs(members)
            for group in its_groups:
                label = group.label
                if place is not None:  # its options follow if it has several groups
                    label = str(place) if len(its_groups) == 1 else f"{place}: {label}"
                seeds = groups.setdefault(label, {})
                for run in group.runs:
                    seed = str(run.path) if run.seed is None else run.seed
                    seeds[seed] = _seed(run, curves[run.path], metric)
                left_out += [(pair[0].path, f"it {repeat_note(*pair)}") for pair in group.repeats]
        curved = [seed for seeds in groups.values() for seed in seeds.values()]
        frames = shared_frames([one.curve for one in curved], [one.ended for one in curved])
        late = [one.path for one in curved if one.curve.frames[0] > frames]
        unit = units_of(its)
        why = f"it has no {metric} up to {frames:,.0f} {unit}, the fewest that a run has"
        left_out += [(path, why) for path in late]
        kept = {
            label: {seed: one for seed, one in seeds.items() if one.path not in late}
            for label, seeds in groups.items()
        }
        groups = {label: seeds for label, seeds in kept.items() if seeds}
        solved = _threshold(its) if metric == RETURN and not minimize else None
        tasks.append(TaskStudy(task, frames, groups, solved, unit))
    return Study(metric, tasks, left_out, minimize)


def _reason(
    run: RunSummary, metric: str, curves: Mapping[str, Curve], unfinished: bool
) -> str | None:
    """Return why a run does not count; ``None`` if it does."""
    # A range goes through all its members to find that it holds no None.
    if run.seed is not None and run.seed in TUNING_SEEDS:
        return "its seed is one of tuning, whose runs are no evidence for what was chosen"
    if run.status == "unknown" and run.reason:
        return run.reason  # its group is unknown
    if metric not in curves:
        return f"it has no {metric}"
    if run.status not in ENDED and not unfinished:
        verbs = {"running": "is still ", "interrupted": "was "}
        return (
            f"it {verbs.get(run.status, '')}{run.status} at {run.frames:,} {run.unit}; finish it: "
            "without the seeds that fail, the others look better than they are"
        )
    return None


def _by_place(
    runs: Sequence[RunSummary], places: Sequence[Path]
) -> dict[Path | None, list[RunSummary]]:
    """Group runs by the innermost of the directories that contain them."""
    if not places:
        return {None: list(runs)}
    found: dict[Path | None, list[RunSummary]] = {}
    for run in runs:
        path = run.path.resolve()
        around = [place for place in places if path.is_relative_to(place.resolve())]
        found.setdefault(max(around, key=lambda place: len(place.resolve().parts)), []).append(run)
    return found


def _threshold(runs: Sequence[RunSummary]) -> float | None:
    found = {run.options.get("stop_at") for run in runs}
    (one, *others) = found
    return float(one) if not others and isinstance(one, (int, float)) else None


def _seed(run: RunSummary, curves: Mapping[str, Curve], metric: str) -> SeedCurve:
    return SeedCurve(run.path, curves[metric], run.status in ENDED[1:], _seconds_at(run, curves))


def _seconds_at(run: RunSummary, curves: Mapping[str, Curve]) -> Curve:
    """Return seconds over frames: the speed of each log window, scaled to the run's total time."""
    end = max(run.frames, 1)
    speed = curves.get("time/fps")
    if speed is None or not (speed.values > 0).all():
        return Curve(np.array([0, end]), np.array([0.0, run.seconds]))
    spent = np.cumsum(np.diff(speed.frames, prepend=0) / speed.values)
    frames = np.append(speed.frames, end) if speed.frames[-1] < end else speed.frames
    spent = np.append(spent, spent[-1]) if len(frames) > len(spent) else spent
    scale = run.seconds / spent[-1] if spent[-1] > 0 else 0.0
    return Curve(np.insert(frames, 0, 0), np.insert(spent * scale, 0, 0.0))
