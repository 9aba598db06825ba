"""Which runs belong together: those that differ only by their seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.endings import ENDED
from ...base.plain import flatten_config
from ...run.config import FREE_AMONG_SEEDS
from .summary import RunSummary


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
    ordered = sorted(group, key=lambda run: (run.status in ENDED, run.updated or 0.0))
    return {_evidence(run): run for run in ordered}


def _evidence(run: RunSummary) -> Any:
    """What two runs of a group share if one only repeats the other."""
    if run.seed is not None and run.options:
        return "seed", run.seed
    return run.id or run.path


def configuration(run: RunSummary) -> dict[str, Any]:
    """The options of a run that say what is run, nested ones joined by dots."""
    flat = flatten_config(run.options)
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
