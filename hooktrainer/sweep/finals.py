"""The finals of a sweep: its best trials are trained from further seeds before one of them wins.

The best of many trials has had luck, the more the fewer its seeds are. Seeds that it was not chosen
by tell luck from merit, and a few trials are all that is worth them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..show.curves import read_curves
from ..statistics import SCORES
from ..store.run_dir import RunDir
from .extra_seeds import train_from
from .sweep import Sweep
from .trial_runs import METRIC

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

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
