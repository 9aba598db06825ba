"""Whether the winner of a sweep is better than the default settings, on seeds that are fresh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..algorithms import Algorithm
from ..algorithms.seed_runs import run_of, train_runs
from ..base.endings import ENDED
from ..base.words import plural
from ..errors import CheckpointError, TakenError
from ..show.curves import read_curves
from ..show.report import summarize
from ..show.report.analysis import Comparison, Section, analyze
from ..show.report.study import Study, read_study
from ..statistics import SCORES
from ..store.lock import RunLock
from ..store.run_dir import RunDir
from .ledger import refuse_links
from .sweep import Sweep
from .trial_runs import METRIC

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

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
    section = analyze(study, score=sweep.options.objective)[0] if enough else None
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


# -- The finals of a sweep: its best trials are trained from further seeds before one of them wins.

MORE: Final = 1
"""How many times as many seeds a trial has in the finals, beside those that it had."""


def play_finals(sweep: Sweep) -> None:
    """Train the finalists from further tuning seeds, and note what they reach over all of theirs.

    One of which a seed fails has reached nothing.

    Args:
        sweep: With all its trials.
    """
    finalists = sweep.finalists
    if len(finalists) < 2:
        return
    count = sweep.options.seeds
    seeds = range(sweep.seeds.stop, sweep.seeds.stop + MORE * count)
    places = {one.number: sweep.place / f"trial{one.number}" for one in finalists}
    settings = [(sweep.algorithm_of(one), places[one.number]) for one in finalists]
    failures = train_from(seeds, settings)
    score, frames = SCORES[sweep.options.objective], sweep.algorithm.total_frames
    values: dict[int, float | None] = {}
    for one in finalists:
        if places[one.number] in failures:
            values[one.number] = None
            continue
        scores = [
            score(read_curves(RunDir(places[one.number] / f"seed{seed}"), [METRIC])[METRIC], frames)
            for seed in seeds
        ]
        cost = _cost(sweep, one)
        before = count * (float(one.value or 0.0) + cost)
        values[one.number] = (before + sum(scores)) / (count + len(scores)) - cost
    sweep.note_finals(values)


def _cost(sweep: Sweep, one: FrozenTrial) -> float:
    """What a trial's CPU seconds have taken from its value."""
    seconds = float(one.user_attrs.get("cpu_seconds", 0.0))
    return sweep.options.cpu_second * seconds / sweep.options.seeds


# -- Training settings of a sweep from further seeds when its trials are done.


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """In the block, no other process is in one for the same place.

    Raises:
        TakenError: If one is.
    """
    place.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(place)
    except CheckpointError:
        raise TakenError("another process is choosing and confirming the winner") from None
    try:
        yield
    finally:
        lock.release()


def train_from(
    seeds: Sequence[int], settings: Sequence[tuple[Algorithm, Path]]
) -> dict[Path, Exception]:
    """Train each of some settings from some seeds.

    What has come to its end already is left as it is; what was killed goes on.

    Args:
        seeds: The seeds.
        settings: Runs, each with the directory that its seeds' directories are in.

    Returns:
        By directory of those that have failed, the first of what their runs have raised.
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
