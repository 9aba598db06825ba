"""`hooktrainer report --until-decided`: adds seeds until it is decided which group is the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..base.endings import ENDED
from ..base.tied_program import tied
from ..base.words import listed, ranges
from ..errors import ConfigError
from ..loop.signals import GRACE
from ..run.programs import run_programs
from ..show.report import RunSummary
from ..show.report.study import Study
from ..statistics import Decision, decided, interval
from ..statistics.sequential import looks
from . import output
from .more_seeds import Contender, commands, contenders

_STDERR = 2  # stdout is the report's

Read = Callable[[], tuple[Sequence[RunSummary], Study]]
"""Reads the runs, as they stand."""


def add_seeds_until_decided(
    read: Read, budget: int, *, score: str, workers: int, trust: bool
) -> Decision | None:
    """Train seeds for the groups of a report, from look to look, until it is decided.

    Seeds count in the order of their numbers, however they score, and who was killed goes on where
    it stood. So it is decided as it would have been at once.

    Args:
        read: Reads the runs.
        budget: The most seeds a group.
        score: What is made of a run's curve.
        workers: How many processes train at the same time.
        trust: Whether to run commands that somebody else began runs with.

    Returns:
        The decision; ``None`` if seeds have failed, which has been said.

    Raises:
        ConfigError: If there is nothing that can be decided, or no seeds can be added.
        SystemExit: If a signal ended it.
    """
    try:
        sizes = looks(budget)
    except ValueError:
        raise ConfigError(
            f"--until-decided {budget}: it takes 5 seeds a group to decide anything."
        ) from None
    tried = 0
    while True:
        runs, study = read()
        groups = contenders(runs, study, score)
        scores = {one.label: one.scores for one in groups}
        decision = decided(scores, budget, minimize=study.minimize)
        if decision.seeds:
            _say_look(groups, decision)
        number = decision.next_look
        if number is None:
            return decision
        lacking = [one for one in groups if len(one.scores) < number]
        if number == tried:
            for one in lacking:
                output.say(f"not decided: {_why(one)}")
            return None
        if not tried:
            output.say(f"the seeds of each group are looked at when there are {listed(sizes)}")
        tried = number
        _train(lacking, number, workers=workers, trust=trust)


def _train(groups: Sequence[Contender], number: int, *, workers: int, trust: bool) -> None:
    shares = -(-workers // len(groups))
    whole = [each for one in groups for each in commands(one, number, shares=shares, trust=trust)]
    for one in groups:
        goes_on = [run.seed for run in one.unfinished(number) if run.seed is not None]
        parts = [
            f"{word} {ranges(seeds)}"
            for word, seeds in (("going on with", goes_on), ("adding", one.new_seeds(number)))
            if seeds
        ]
        output.say(f"{one.label}: {' and '.join(parts)}")
    quiet = ["--no-progress-bar"] if workers > 1 else []
    graces = [run.options.get("grace", GRACE) for one in groups for run in one.runs]
    starts = [
        partial(tied, [*each.words[1:], *quiet], each.directory, stdout=_STDERR) for each in whole
    ]
    run_programs(starts, at_once=workers, grace=max(graces))


def _say_look(groups: Sequence[Contender], decision: Decision) -> None:
    """Say what a look has shown."""
    means = listed(
        f"{one.label} {output.number(interval(one.scores[: decision.seeds]).value)}"
        for one in groups
    )
    said = "; ".join(f"{better} is better than {other}" for better, other in decision.better)
    after = "" if decision.next_look is None else f"; the next look is at {decision.next_look}"
    output.say(
        f"at {decision.seeds} seeds each: {said or 'not decided'} (interquartile means: {means})"
        f"{after}"
    )


def _why(one: Contender) -> str:
    """Why a group has not the seeds that it was to have."""
    if len(one.scores) == len(one.runs):
        return (
            f"no further seed of {one.label} has come to an end; what was run has said why, or "
            "takes no --seed and --run-dir"
        )
    run = one.runs[len(one.scores)]
    reason = run.reason or ("it has no evaluations" if run.status in ENDED else "see above")
    return (
        f"{run.path} {run.status}: {reason}. Without the seeds that fail, {one.label} would look "
        "better than it is"
    )
