"""Groups of runs with equal options, whatever their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from ...base.endings import ENDED
from ...base.plain import flatten_config
from ...base.words import listed
from ...run.config import FREE_AMONG_SEEDS
from ..html import spread_text
from .summary import RunSummary

_MOST_OPTIONS: Final = 3  # options in a label; longer labels hide the numbers


@dataclass(frozen=True)
class Group:
    """Runs of one experiment whose options differ in nothing that changes learning, by seed.

    `label` has the options in which it differs from the baseline, the group most similar to the
    others, or is the experiment. `repeats` are runs that are not counted, each with the counted run
    of its seed.
    """

    label: str
    runs: Sequence[RunSummary]
    repeats: Sequence[tuple[RunSummary, RunSummary]] = ()

    def finals(self) -> list[float]:
        """Return the last value of the metric of every run that has one."""
        return [run.last for run in self.runs if run.last is not None]


def group_runs(runs: Sequence[RunSummary]) -> list[Group]:
    """Group runs with equal options.

    Of several with the same seed and options, the one with the most planned frames counts. Of these
    a run that was stopped, such as a replay of `hooktrainer rewind --to`, counts only if the others
    were too. Then the one with the most frames counts; of equal ones that which finished last.
    Forked runs are in one group if they have the same fork point.

    Returns:
        The groups, in order of their first run, each with a unique label.
    """
    by_experiment: dict[str, dict[Any, list[RunSummary]]] = {}
    for run in runs:
        key = _branch(run), *sorted((n, repr(v)) for n, v in configuration(run).items())
        by_experiment.setdefault(run.experiment, {}).setdefault(key, []).append(run)
    labels: dict[str, list[RunSummary]] = {}
    for experiment, members in by_experiment.items():
        its = list(members.values())
        for differences, group in zip(_differences(its), its, strict=True):
            words = [experiment] if len(by_experiment) > 1 or not differences else []
            label = " ".join([*words, listed(differences, most=_MOST_OPTIONS)]).strip()
            if group[0].forked_from is not None:
                label = f"{label} from {lineage(group[0], runs)}".strip()
            labels[_unique(label or str(group[0].path), labels)] = group
    order = {run.path: number for number, run in enumerate(runs)}
    made = []
    for label, group in sorted(labels.items(), key=lambda item: order[item[1][0].path]):
        counted = _one_a_seed(group)
        repeats = [(run, counted[_evidence(run)]) for run in group if run not in counted.values()]
        chosen = [run for run in group if run in counted.values()]
        made.append(Group(label, chosen, repeats))
    return made


def _differences(groups: Sequence[Sequence[RunSummary]]) -> list[list[str]]:
    """Return, for each group of an experiment, the options in which it differs from the baseline.

    If groups differ in one option only, each is named by its value, the baseline too.
    """
    names = differing([group[0] for group in groups])
    values = [
        {name: configuration(group[0]).get(name) for name in names} if group[0].options else {}
        for group in groups
    ]

    def unlike(number: int) -> tuple[float, int]:
        own = values[number]
        apart = sum(repr(own[n]) != repr(other[n]) for other in values if other for n in own)
        return apart if own else float("inf"), -len(groups[number])

    baseline = values[min(range(len(groups)), key=unlike)]
    return [
        [
            f"{name} {short(value)}"
            for name, value in own.items()
            if len(names) == 1 or repr(value) != repr(baseline[name])
        ]
        for own in values
    ]


def _unique(label: str, taken: Mapping[str, Any]) -> str:
    """Return a label that is not taken: values may be equal when rounded."""
    same = (f"{label} ({number})" for number in range(2, len(taken) + 3))
    return next(one for one in (label, *same) if one not in taken)


def lineage(run: RunSummary, runs: Sequence[RunSummary]) -> str:
    """Return where a run was forked, as ``RUN@FRAMES``; empty if it was not.

    Args:
        run: The run.
        runs: Runs among which its parent is searched, which may have been moved since.
    """
    if run.forked_from is None:
        return ""
    recorded = Path(run.forked_from["path"]).parent.parent
    parent = (other.path for other in runs if other.id == run.forked_from["run_id"])
    return f"{next(parent, recorded)}@{run.forked_from['frames']}"


def branches(runs: Sequence[RunSummary]) -> list[str]:
    """Draw the runs that branched off others, and these, as a tree: a line each.

    A branch has the frames at which it branched off, and the options in which it differs. Of copies
    of a run only the first has branches. Empty if no run has a parent among the runs.
    """
    known: dict[str, RunSummary] = {}
    for run in runs:
        if run.id is not None:
            known.setdefault(run.id, run)
    children: dict[str | None, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda run: (_branch(run)[1] or 0, str(run.path))):
        parent = _branch(run)[0]
        children.setdefault(parent if parent in known else None, []).append(run)

    def draw(run: RunSummary, indent: str) -> list[str]:
        below = children.get(run.id, []) if known.get(run.id or "") is run else []
        lines: list[str] = []
        for child in below:
            own, given = configuration(child), configuration(run)
            changed = [f"{n} {short(v)}" for n, v in own.items() if given.get(n) != v]
            last = child is below[-1]
            words = [f"{child.forked_from['frames']:,}" if child.forked_from else "", *changed]
            lines.append(f"{indent}{'└' if last else '├'} at {', '.join(words)}: {child.path}")
            lines += draw(child, indent + ("  " if last else "│ "))
        return lines

    trees = [(run, draw(run, "")) for run in children.get(None, [])]
    return [line for run, lines in trees if lines for line in (str(run.path), *lines)]


def _branch(run: RunSummary) -> tuple[Any, ...]:
    parent = run.forked_from or {}
    return parent.get("run_id"), parent.get("frames")


def _one_a_seed(group: Sequence[RunSummary]) -> dict[Any, RunSummary]:
    """Choose the run that counts for each seed of a group."""

    def rank(run: RunSummary) -> tuple[bool, int, bool, int, float]:
        ended, stopped = run.status in ENDED, run.status == "stopped"
        return ended, run.total_frames or 0, not stopped, run.frames, run.updated or 0.0

    return {_evidence(run): run for run in sorted(group, key=rank)}


def _evidence(run: RunSummary) -> Any:
    """Return what two runs of a group share if one only repeats the other."""
    if run.seed is not None and run.options:
        return "seed", run.seed
    return run.id or run.path


def configuration(run: RunSummary) -> dict[str, Any]:
    """Return the options of a run that affect learning, nested ones joined by dots.

    Options that are None are left out, because a run of an older version lacks them. Those that a
    resume has changed are in ``changed``: the run is no seed of those that had them all along.
    """
    flat = flatten_config(run.options)
    kept = {n: v for n, v in flat.items() if n not in FREE_AMONG_SEEDS and v is not None}
    given = run.options.get("allow_change")
    names = [str(n).replace("-", "_") for n in given] if isinstance(given, list) else []
    changed = listed(name for name in names if name not in FREE_AMONG_SEEDS)
    return kept | ({"changed": changed} if changed else {})


def differing(runs: Sequence[RunSummary]) -> list[str]:
    """Return the options in which runs of the same experiment differ.

    Runs that ended before they wrote any options are ignored.
    """
    found: dict[str, None] = {}
    for experiment in dict.fromkeys(run.experiment for run in runs):
        its = [run for run in runs if run.experiment == experiment and run.options]
        configs = [configuration(run) for run in its]
        for name in dict.fromkeys(name for config in configs for name in config):
            if len({repr(config.get(name)) for config in configs}) > 1:
                found[name] = None
    return list(found)


def short(value: Any) -> str:
    """Format the value of an option for a table, in at most 24 characters.

    Of names such as ``module:Name``, the places are left out.
    """
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        value = " ".join(one.rpartition(":")[2] for one in value)
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def repeat_note(run: RunSummary, counted: RunSummary) -> str:
    """Explain why a run is not counted: another has its seed and options."""
    what = "is a copy of" if run.id and run.id == counted.id else "has the seed and options of"
    return f"{what} {counted.path}, which is counted in its place"


def spread(values: Sequence[float]) -> str:
    """Format mean and sample standard deviation, such as ``471 ± 22``; empty without values."""
    if not values:
        return ""
    return spread_text(mean(values), stdev(values) if len(values) > 1 else None)
