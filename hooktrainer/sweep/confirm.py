"""Whether the winner of a sweep is better than the default settings, on seeds that are fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..algorithms import Algorithm
from ..base.words import plural
from ..show.report import summarize
from ..show.report.comparisons import Comparison
from ..show.report.findings import Section, find
from ..show.report.study import Study, read_study
from ..store.run_dir import RunDir
from .extra_seeds import train_from
from .sweep import Sweep
from .trial_runs import METRIC

DEFAULTS: Final = "default settings"
KEEP: Final = "keep the defaults"
"""How a verdict begins that speaks for them."""
CONFIRM: Final = "confirm"
"""Directory of the runs, in that of the sweep."""


@dataclass(frozen=True)
class Confirmation:
    """What fresh seeds say of a winner.

    Attributes:
        winner: What it is called.
        study: The runs.
        section: What can be said of them; ``None`` if too few have come to their end.
    """

    winner: str
    study: Study
    section: Section | None

    @property
    def comparison(self) -> Comparison | None:
        """The winner beside the default settings."""
        return self.section.comparisons[0] if self.section and self.section.comparisons else None

    @property
    def better(self) -> bool:
        """Whether it is better than the default settings, with an error of 5 %."""
        one = self.comparison
        return one is not None and one.separated and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether it does worse than the default settings on these seeds, told apart or not."""
        one = self.comparison
        if one is None:
            return False
        own = one.improvement.value if one.first == self.winner else 1 - one.improvement.value
        return own < 0.5

    @property
    def verdict(self) -> str:
        """What can be said, in a line."""
        if self.comparison is None:
            return "there are not enough runs that came to their end"
        return self.comparison.verdict


def confirm(sweep: Sweep, seeds: int) -> Confirmation | None:
    """Train the winner and the default settings from fresh seeds, and compare them.

    What has been trained already is not trained again; what was killed goes on.

    Args:
        sweep: With all its trials.
        seeds: How many seeds, from 0 on: none of those that the trials were trained from.

    Returns:
        What they say; ``None`` if the winner is the default settings, or there is none.
    """
    best = sweep.winner
    if best is None or sweep.algorithm_of(best) == sweep.algorithm:
        return None
    place = sweep.place / CONFIRM
    winner = f"trial {best.number}"
    groups = {
        winner: (sweep.algorithm_of(best), place / f"trial{best.number}"),
        DEFAULTS: (sweep.algorithm, place / "default"),
    }
    train_from(range(seeds), list(groups.values()))
    study = _study(groups, seeds)
    enough = study.tasks and len(study.tasks[0].groups) == 2
    section = find(study, score=sweep.options.objective)[0] if enough else None
    return Confirmation(winner, study, section)


def _study(groups: Mapping[str, tuple[Algorithm, Path]], seeds: int) -> Study:
    places = {path: name for name, (_, path) in groups.items()}
    runs = [
        summarize(RunDir(path / f"seed{seed}"), metric=None)
        for path in places
        for seed in range(seeds)
    ]
    study = read_study(runs, METRIC, places=list(places))
    names = {str(path): name for path, name in places.items()}
    tasks = [
        replace(task, groups={names[group]: own for group, own in task.groups.items()})
        for task in study.tasks
    ]
    return replace(study, tasks=tasks)


def words_of(found: Confirmation | None, seeds: int) -> str:
    """What may be said of the winner of a sweep.

    Args:
        found: What `confirm` returned.
        seeds: The seeds it was asked for; 0 if it was not called.
    """
    if not seeds:
        return "the winner is not confirmed: it has scored most on the seeds that it was chosen by"
    if found is None:
        return f"{KEEP}: they are the best of the settings that were tried"
    fresh = plural(seeds, "fresh seed")
    if found.better:
        return f"confirmed on {fresh}: {found.verdict}"
    said = f"{found.winner} is not confirmed on {fresh}: {found.verdict}"
    return f"{KEEP}: {said}" if found.is_behind else said
