"""The curves of runs, and the mean and spread of those that differ only by their seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...base.plain import flatten
from ...log.csv import read_csv
from ...run.config import FREE_AMONG_SEEDS
from ...store.run_dir import RunDir

if TYPE_CHECKING:
    from .summary import RunSummary

_GRID = 400


@dataclass(frozen=True)
class Curve:
    """A metric of a run.

    Attributes:
        frames: Where it was written, rising, ``int64 [n]``.
        values: Finite, ``float64 [n]``.
    """

    frames: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float]]) -> Curve:
        """Make a curve of ``(frames, value)`` pairs; what is not finite is left out."""
        kept = dict(pair for pair in pairs if math.isfinite(pair[1]))
        frames = np.array(sorted(kept), np.int64)
        return cls(frames, np.array([kept[int(frame)] for frame in frames], np.float64))

    def best(self, *, minimize: bool = False) -> tuple[int, float] | None:
        """The frames and the value of its highest (or lowest) point; ``None`` if it has none."""
        if not len(self.values):
            return None
        index = int(self.values.argmin() if minimize else self.values.argmax())
        return int(self.frames[index]), float(self.values[index])


@dataclass(frozen=True)
class Band:
    """Mean and spread of several curves, over the frames that all of them have reached.

    Attributes:
        frames: Rising, ``float64 [n]``.
        mean: Over the curves, ``float64 [n]``.
        std: Sample standard deviation over the curves, zero for a single one, ``float64 [n]``.
        count: Number of curves.
    """

    frames: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    count: int


@dataclass(frozen=True)
class Group:
    """Runs of one experiment whose options differ in nothing but the seed.

    Attributes:
        label: What tells the group from the others.
        runs: Its runs, each of another seed.
        repeats: Further runs, each with the one in ``runs`` that has its seed, or is a copy of it.
            They are no further evidence, and are not counted.
    """

    label: str
    runs: Sequence[RunSummary]
    repeats: Sequence[tuple[RunSummary, RunSummary]] = ()

    def finals(self) -> list[float]:
        """The last value of the metric, of every run that has one."""
        return [run.last for run in self.runs if run.last is not None]


def read_curves(run: RunDir, names: Iterable[str] | None = None) -> dict[str, Curve]:
    """Read metrics of a run from its `metrics.csv`, or else from its TensorBoard files.

    Args:
        run: The run.
        names: Only these; by default all.

    Returns:
        Metric name to curve, for those that are there.
    """
    wanted = None if names is None else set(names)
    try:
        series: Mapping[str, Sequence[tuple[int, float]]] = read_csv(run.metrics, wanted)
    except FileNotFoundError:
        if not run.logs.is_dir():
            return {}
        from ...log.tensorboard import read_scalars

        series = read_scalars(run.logs)
    return {n: Curve.of(s) for n, s in series.items() if wanted is None or n in wanted}


def band(curves: Sequence[Curve]) -> Band:
    """Mean and spread of curves, which are joined linearly between their points.

    Args:
        curves: Each of at least one point.
    """
    low = max(int(curve.frames[0]) for curve in curves)
    high = min(int(curve.frames[-1]) for curve in curves)
    grid = np.unique(np.concatenate([curve.frames for curve in curves])).astype(np.float64)
    grid = grid[(grid >= low) & (grid <= high)]
    if len(grid) > _GRID:
        grid = np.linspace(low, high, _GRID)
    stack = np.stack([np.interp(grid, curve.frames, curve.values) for curve in curves])
    std = stack.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(grid))
    return Band(grid, stack.mean(axis=0), std, len(curves))


def group_runs(runs: Sequence[RunSummary]) -> list[Group]:
    """Put runs together that differ only by their seed.

    Of several with the same seed and options, the one that finished last counts. Runs that branched
    off another are together if they did so at the same place.

    Returns:
        The groups, in order of their first run; each is labelled by its experiment and by the
        options that not all groups of the experiment share.
    """
    members: dict[tuple[Any, ...], list[RunSummary]] = {}
    for run in runs:
        config = configuration(run)
        branch = _branch(run)
        key = (
            run.experiment,
            branch,
            *sorted((name, repr(value)) for name, value in config.items()),
        )
        members.setdefault(key, []).append(run)
    varying = {experiment: differing(its) for experiment, its in _by_experiment(runs).items()}
    groups = []
    for group in members.values():
        experiment, options = group[0].experiment, configuration(group[0])
        told = [f"{n}={_short(options[n])}" for n in varying[experiment] if n in options]
        label = " ".join([experiment, *told]).strip()
        if group[0].forked_from is not None:
            label += f" from {lineage(group[0], runs)}"
        counted = _one_a_seed(group)
        repeats = [(run, counted[_evidence(run)]) for run in group if run not in counted.values()]
        chosen = [run for run in group if run in counted.values()]
        groups.append(Group(label or str(group[0].path), chosen, repeats))
    return groups


def lineage(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    """Where a run branched off, as ``RUN@FRAMES``; empty if it did not.

    Args:
        run: The run.
        runs: Runs among which its parent is looked for, which may have been moved since.
    """
    if run.forked_from is None:
        return ""
    recorded = Path(run.forked_from["path"]).parent.parent
    parent = (other.path for other in runs if other.id == run.forked_from["run_id"])
    return f"{next(parent, recorded)}@{run.forked_from['frames']}"


def _branch(run: RunSummary) -> tuple[Any, ...]:
    parent = run.forked_from or {}
    return parent.get("run_id"), parent.get("frames")


def _one_a_seed(group: Sequence[RunSummary]) -> dict[Any, RunSummary]:
    """Of the runs of a group, the one that counts for each piece of evidence."""
    ordered = sorted(
        group, key=lambda run: (run.status in ("finished", "stopped"), run.updated or 0.0)
    )
    return {_evidence(run): run for run in ordered}


def _evidence(run: RunSummary) -> Any:
    """What two runs of a group share if one only repeats the other."""
    if run.seed is not None and run.options:
        return "seed", run.seed
    return run.id or run.path


def configuration(run: RunSummary) -> dict[str, Any]:
    """The options of a run that say what is run, nested ones joined by dots."""
    flat = flatten(run.options)
    return {name: value for name, value in flat.items() if name not in FREE_AMONG_SEEDS}


def differing(runs: Sequence[RunSummary]) -> list[str]:
    """The options in which runs of one experiment differ.

    Those of two experiments are not compared: they share few, and all of them would be listed. Nor
    are those of a run that ended before it wrote any.
    """
    found: dict[str, None] = {}
    for its in _by_experiment(runs).values():
        configs = [config for config in map(configuration, its) if config]
        for name in dict.fromkeys(name for config in configs for name in config):
            if len({repr(c[name]) if name in c else None for c in configs}) > 1:
                found[name] = None
    return list(found)


def _by_experiment(runs: Sequence[RunSummary]) -> dict[str, list[RunSummary]]:
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        found.setdefault(run.experiment, []).append(run)
    return found


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
