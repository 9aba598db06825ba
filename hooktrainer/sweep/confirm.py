"""Confirmation of a sweep's winner on fresh seeds, and the finals before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..algorithms import Algorithm
from ..algorithms.seed_runs import run_of, train_runs
from ..base.endings import ENDED
from ..base.words import plural
from ..show import Study, analyze, read_curves, read_study, summarize
from ..show.report.analysis import Comparison, Section
from ..statistics import SCORES
from ..store.run_dir import RunDir
from .ledger import refuse_links
from .sweep import Sweep
from .trial_runs import METRIC

DEFAULTS: Final = "default settings"
KEEP: Final = "keep the defaults"
"""First words of a verdict for the defaults."""
CONFIRM: Final = "confirm"
"""Directory of the runs, in the sweep's."""


@dataclass(frozen=True)
class Confirmation:
    """The comparison of a winner with the default settings on fresh seeds.

    Attributes:
        winner: Its name.
        study: The runs.
        section: Their analysis; ``None`` if too few have ended.
    """

    winner: str
    study: Study
    section: Section | None

    @property
    def comparison(self) -> Comparison | None:
        """The comparison of the two."""
        return self.section.comparisons[0] if self.section and self.section.comparisons else None

    @property
    def better(self) -> bool:
        """Whether the winner is better, with an error of 5 %."""
        one = self.comparison
        return one is not None and one.separated and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether the winner scores less on these seeds, significantly or not."""
        one = self.comparison
        if one is None:
            return False
        own = one.improvement.value if one.first == self.winner else 1 - one.improvement.value
        return own < 0.5


def confirm(sweep: Sweep, seeds: int) -> Confirmation | None:
    """Train the winner and the default settings from fresh seeds, and compare them.

    Finished runs are not trained again; killed ones continue.

    Args:
        sweep: A complete sweep.
        seeds: Number of seeds, from 0 on.

    Returns:
        The comparison; ``None`` without a winner, or if it is the default settings.
    """
    best = sweep.winner
    if best is None or sweep.algorithm_of(best) == sweep.algorithm:
        return None
    place = sweep.place / CONFIRM
    winner = f"trial {best.number}"
    places = {place / f"trial{best.number}": winner, place / "default": DEFAULTS}
    settings = sweep.algorithm_of(best), sweep.algorithm
    train_from(range(seeds), list(zip(settings, places, strict=True)))
    study = _study(places, seeds)
    enough = study.tasks and len(study.tasks[0].groups) == 2
    section = analyze(study, score=sweep.options.objective)[0] if enough else None
    return Confirmation(winner, study, section)


def _study(places: Mapping[Path, str], seeds: int) -> Study:
    runs = [RunDir(path / f"seed{seed}") for path in places for seed in range(seeds)]
    summaries = [summarize(run, metric=None) for run in runs]
    study = read_study(summaries, METRIC, places=list(places))
    tasks = [
        replace(task, groups={places[Path(group)]: own for group, own in task.groups.items()})
        for task in study.tasks
    ]
    return replace(study, tasks=tasks)


def words_of(found: Confirmation | None, seeds: int) -> str:
    """Return the verdict on a sweep's winner.

    Args:
        found: The result of `confirm`.
        seeds: Its number of seeds; 0 if it was not called.
    """
    if not seeds:
        return "the winner is not confirmed: it has scored most on the seeds that it was chosen by"
    if found is None:
        return f"{KEEP}: they are the best of the settings that were tried"
    fresh, one = plural(seeds, "fresh seed"), found.comparison
    why = "there are not enough runs that came to their end" if one is None else one.verdict
    if found.better:
        return f"confirmed on {fresh}: {why}"
    text = f"{found.winner} is not confirmed on {fresh}: {why}"
    return f"{KEEP}: {text}" if found.is_behind else text


# -- Finals.


def play_finals(sweep: Sweep) -> None:
    """Train finalists from as many further tuning seeds, and record the values over all seeds.

    A finalist with a failed seed or without a finite score has no value.
    """
    finalists, count = sweep.finalists, sweep.options.seeds
    seeds = range(sweep.seeds.stop, sweep.seeds.stop + count)
    places = [sweep.ledger.place_of(one.number) for one in finalists]
    failures = train_from(seeds, list(zip(map(sweep.algorithm_of, finalists), places, strict=True)))
    score, frames = SCORES[sweep.options.objective], sweep.algorithm.total_frames
    for one, place in zip(finalists, places, strict=True):
        one.final = None
        runs = [read_curves(RunDir(place / f"seed{seed}"), [METRIC]) for seed in seeds]
        curves = [run[METRIC] for run in runs if METRIC in run]
        if place not in failures and len(curves) == count:
            cost = sweep.options.cpu_second * one.cpu_seconds / count
            total = count * (float(one.value or 0.0) + cost)
            total += sum(score(curve, frames) for curve in curves)
            one.final = total / (2 * count) - cost
        sweep.ledger.save(one)


# -- Training from further seeds.


def train_from(
    seeds: Sequence[int], settings: Sequence[tuple[Algorithm, Path]]
) -> dict[Path, Exception]:
    """Train each of some settings from some seeds; finished runs are kept, killed ones continue.

    Args:
        seeds: The seeds.
        settings: Runs, each with the directory of its seeds' directories.

    Returns:
        Directory of failed settings to the first error.
    """
    failures: dict[Path, Exception] = {}
    runs, places = [], []
    for algorithm, place in settings:
        for seed in seeds:
            refuse_links(place.parent, place, place / f"seed{seed}")
            ended = RunDir(place / f"seed{seed}").read().get("status") in ENDED
            if not ended:
                runs.append(run_of(replace(algorithm, resume="latest"), seed, place))
                places.append(place)
    for place, result in zip(places, train_runs(runs, keep=True, progress_bar=False), strict=True):
        if result.error is not None:
            failures.setdefault(place, result.error)
    return failures
