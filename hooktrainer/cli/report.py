"""`hooktrainer report`: estimates and comparisons of algorithms from the seeds that were run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Literal

from ..base.child_program import ChildProgram
from ..base.endings import ENDED, GRACE
from ..base.words import listed, printable, ranges
from ..errors import ConfigError
from ..run.seeds import OWN, words_of_seeds
from ..show import RunSummary, Study, group_runs, summarize
from ..statistics import Decision, decide, interval, looks, score_function
from ..store.run_dir import read_config
from . import output
from .arguments import Count, Flag, OptionalCount, OptionalOutFile, Places, shown_as
from .runs import check_metrics
from .scripts import command_again, place_of

if TYPE_CHECKING:
    from ..show.report.analysis import Section
    from ..statistics import Reference


Name = Annotated[str, shown_as("NAME")]
Group = Annotated[str | None, shown_as("GROUP")]
Score = Annotated[Literal["last", "tail", "best", "area"], shown_as("SCORE")]
Level = Annotated[float | None, shown_as("RETURN")]

References = Annotated[Path | None, shown_as("FILE")]


def report(
    places: Places = (Path("runs"),),
    /,
    *,
    metric: Name = "eval/return",
    minimize: Flag = False,
    score: Score = "last",
    threshold: Level = None,
    reference: References = None,
    by_place: Flag = False,
    against: Group = None,
    unfinished: Flag = False,
    until_decided: OptionalCount = None,
    workers: Count = 1,
    trust: Flag = False,
    html: OptionalOutFile = None,
    json: Flag = False,
) -> int:
    """Compare algorithms over seeds: estimates with 95 % intervals, and which group is better.

    Runs with the same options are a group, whatever their seeds, their length and their
    evaluations; two of one seed count once. All are compared at the frames that all have. If there
    are too few seeds for an interval, it is left out, and the report estimates how many more would
    help. Comparisons of more than two are corrected (Holm). Runs of a sweep count if PLACE is the
    sweep's directory.

    Example: hooktrainer report runs/ppo runs/a2c -o report.html

    Args:
        places: runs, and directories with runs anywhere below; runs/ if none is given
        metric: what to compare
        minimize: less of the metric is better, such as of an error or a time
        score: of each run: last; tail, mean of the last tenth; best; or area under its curve
        threshold: the value that counts as solved; by default the return at which the runs stop
        reference: YAML, by environment low and high: normalized scores are 0 at low and 1 at high;
            with --minimize the other way round
        by_place: runs below different PLACEs are different groups, also if their options are equal
        against: compare all groups with this one, instead of all pairs
        unfinished: count unfinished runs, which limits all to their frames
        until_decided: train more seeds of every group, up to N each, until one is the best;
            checking along the way keeps false findings within 5 %
        workers: how many processes train these seeds
        trust: train them even if the runs were begun by another user, or on another machine
        html: write the report to this file, a self-contained page
        json: print JSON: by task the groups, with their estimates, and the comparisons
    """
    from ..show import analyze, read_study, report_page
    from ..show.report.grouping import branches
    from ..statistics import REFERENCES

    if html is not None:
        output.refuse_directory(html, "report.html")
    returns = metric.endswith("/return") and not minimize
    references = _references(reference, REFERENCES if returns else {})

    def read() -> tuple[list[RunSummary], Study]:
        runs = [summarize(run, metric=None) for run in output.runs_below(places)]
        chosen = places if by_place else ()
        study = read_study(runs, metric, minimize=minimize, unfinished=unfinished, places=chosen)
        return runs, study

    decision = None
    if until_decided is not None:
        given = {"--by-place": by_place, "--against": against, "--unfinished": unfinished}
        if refused := [option for option, value in given.items() if value]:
            raise ConfigError(
                f"--until-decided adds seeds to groups of other options, all of which it compares: "
                f"leave out {listed(refused)}."
            )
        decision = add_seeds_until_decided(
            read, until_decided, score=score, workers=workers, trust=trust
        )
        if decision is None:
            return 1
    runs, study = read()
    for why, which in study.reasons().items():
        output.note(f"left out: {which}: {why}")
    if not study.tasks:
        check_metrics([metric], runs)
        raise ConfigError(f"there is nothing to report on below {listed(places)}: no run counts.")
    sections = analyze(
        study,
        score=score,
        threshold=threshold,
        references=references,
        against=against,
        decision=decision,
    )
    tree = branches(runs)
    if html is not None:  # first, because the reader of stdout may leave
        output.write(html, report_page(study, sections, score, tree))
    if json:
        left_out = [{"run": path, "reason": why} for path, why in study.left_out]
        found = {"metric": metric, "minimize": minimize, "score": score, "confidence": 0.95}
        output.print_json({**found, "tasks": sections, "decision": decision, "left_out": left_out})
    for section in () if json else sections:
        print_section(section, score, metric)
    for line in () if json else tree:
        output.line(printable(line))
    if len(study.tasks) > 1 and all(section.frames is not None for section in sections):
        tasks = [task.task for task in study.tasks if task.task not in references]
        missing = listed(task or "runs without an environment" for task in tasks)
        output.note(
            f"nothing over all tasks: no reference scores for {missing}; give them with "
            "--reference FILE."
            if missing
            else "nothing over all tasks: no group has a seed in each of them. Groups are named "
            "by the options in which they differ; with --by-place, by their directory."
        )
    return 0


def _references(file: Path | None, known: Mapping[str, Reference]) -> Mapping[str, Reference]:
    """Return the known reference scores, overridden by those of a file."""
    from ..statistics import Reference

    if file is None:
        return known
    given = {}
    for task, entry in read_config(file).items():
        try:
            source = str(entry.get("source", file))
            given[task] = Reference(float(entry["low"]), float(entry["high"]), source)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{file}: {task}: {entry!r:.80} is not {{low: ..., high: ...}} with high above low."
            ) from error
    return {**known, **given}


def print_section(section: Section, score: str, metric: str) -> None:
    """Print the results of a task."""
    from ..show.report.analysis import comparisons_table, estimates_table

    title = section.task or "runs"
    if section.frames is not None:
        less = " (less is better)" if section.minimize else ""
        title += f": {score} {metric}{less} at {section.frames:,.0f} {section.unit}"
    heads, rows = estimates_table(section)
    output.print_table(heads, rows, title=title)
    for note in section.notes:
        output.line(f"{note}.")
    heads, rows = comparisons_table(section)
    if rows:
        output.print_table(heads, rows)


# -- `hooktrainer report --until-decided`: add seeds until it is decided which group is the best.


_STDERR = 2  # stdout is for the report
_LOOK = 0.1  # seconds between two looks at the programs
_SLACK = 5.0  # seconds that this process has beyond the programs
Command = tuple[Sequence[str], Path]
"""A command that trains seeds, Python first, and its working directory."""
Read = Callable[[], tuple[Sequence[RunSummary], Study]]
"""Reads the current runs."""


def add_seeds_until_decided(
    read: Read, budget: int, *, score: str, workers: int, trust: bool
) -> Decision | None:
    """Train seeds for the groups of a report, look by look, until the best group is decided.

    Seeds count in the order of their numbers, whatever their scores, and killed runs are resumed,
    so the decision is the same after an interruption. ``budget`` is the most seeds of a group.
    Returns ``None`` if seeds have failed, which has been printed.
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
        groups = candidates(runs, study, score)
        scores = {one.label: one.scores for one in groups}
        decision = decide(scores, budget, minimize=study.minimize)
        number = decision.next_look
        if decision.seeds:
            _print_look(groups, decision)
        if number is None:
            return decision
        lacking = [one for one in groups if len(one.scores) < number]
        if number == tried:
            for one in lacking:
                output.note(f"not decided: {_why(one)}")
            return None
        if not tried:
            output.note(f"the seeds of each group are looked at when there are {listed(sizes)}")
        tried = number
        _train(lacking, number, workers=workers, trust=trust)


def _train(groups: Sequence[Candidate], number: int, *, workers: int, trust: bool) -> None:
    shares = -(-workers // len(groups))
    whole = [each for one in groups for each in commands(one, number, shares=shares, trust=trust)]
    for one in groups:
        unfinished = [run.seed for run in one.unfinished(number) if run.seed is not None]
        seeds = {"resuming": unfinished, "adding": one.new_seeds(number)}
        parts = [f"{word} {ranges(own)}" for word, own in seeds.items() if own]
        output.note(f"{one.label}: {' and '.join(parts)}")
    quiet = ["--no-progress-bar"] if workers > 1 else []
    graces = [run.options.get("grace", GRACE) for one in groups for run in one.runs]
    starts = [
        partial(ChildProgram, [*words[1:], *quiet], directory, stdout=_STDERR)
        for words, directory in whole
    ]
    run_programs(starts, workers, max(graces))


def run_programs(
    starts: Sequence[Callable[[], ChildProgram]], at_once: int, grace: float
) -> list[int]:
    """Run programs, ``at_once`` at a time, until all have ended; return their exit codes.

    A signal that is to end this process is passed on as SIGTERM, on which a run saves and ends
    within ``grace`` seconds; no program is started from then on.

    Raises:
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    from ..loop import Control, GracefulSignals, SignalExit  # they import the trainer's parts

    control, waiting, children = Control(), list(starts), list[ChildProgram]()
    try:
        with GracefulSignals(control, grace + _SLACK):
            while control.signal is None:
                running = sum(child.code is None for child in children)
                if waiting and running < at_once:
                    children.append(waiting.pop(0)())
                elif running:
                    sleep(_LOOK)
                else:
                    break
            if control.signal is not None:
                for child in children:
                    child.terminate()
            for child in children:
                child.wait()
            control.is_leaving = True
    finally:
        for child in children:
            child.close(1.0)
    if control.signal is not None:
        raise SignalExit(control.signal, deadline=control.deadline)
    return [child.code or 0 for child in children]


def _print_look(groups: Sequence[Candidate], decision: Decision) -> None:
    means = listed(
        f"{one.label} {output.number(interval(one.scores[: decision.seeds]).value)}"
        for one in groups
    )
    verdicts = "; ".join(f"{better} is better than {other}" for better, other in decision.better)
    after = f"; the next look is at {decision.next_look}" if decision.next_look else ""
    output.note(
        f"at {decision.seeds} seeds each: {verdicts or 'not decided'} (interquartile means: "
        f"{means}){after}"
    )


def _why(one: Candidate) -> str:
    """Explain why a group lacks seeds."""
    if len(one.scores) == len(one.runs):
        return f"no further seed of {one.label} has finished; see its output"
    run = one.runs[len(one.scores)]
    why = run.reason or "it has no evaluations"
    return f"{run.path} {run.status}: {why}; without it {one.label} would look better than it is"


# -- Which seeds the groups of a report lack, and the commands that train them.


@dataclass(frozen=True)
class Candidate:
    """A group to which seeds can be added.

    Attributes:
        runs: Its runs by seed, unfinished ones included. Seeds are added after the last.
        scores: Scores of the first of them, up to the first unfinished one.
    """

    label: str
    runs: Sequence[RunSummary]
    scores: Sequence[float]

    def unfinished(self, number: int) -> list[RunSummary]:
        """Return the unfinished ones among the first ``number`` runs."""
        return [run for run in self.runs[:number] if run.status not in ENDED]

    def new_seeds(self, number: int) -> list[int]:
        """Return the seeds to add until there are ``number``."""
        following = _seed(self.runs[-1]) + 1
        return list(range(following, following + number - len(self.runs)))


def candidates(runs: Sequence[RunSummary], study: Study, score: str) -> list[Candidate]:
    """Return the groups of a report, with their unfinished runs; at least two, of one task."""
    if len(study.tasks) != 1:
        names = ", ".join(task.task or "unnamed" for task in study.tasks)
        raise ConfigError(f"until it is decided in which task? Name runs of one of {names}.")
    (task,) = study.tasks
    if len(task.groups) < 2:
        raise ConfigError(
            f"there is nothing to decide: all finished runs are of {next(iter(task.groups))}. Name "
            "runs of two groups; one seed of each will do."
        )
    all_groups = group_runs([run for run in runs if str(run.options.get("env") or "") == task.task])
    found, score_of = [], score_function(score, minimize=study.minimize)
    for label, seeds in task.groups.items():
        curves = {one.path: one.curve for one in seeds.values()}
        members = next(g.runs for g in all_groups if any(run.path in curves for run in g.runs))
        ordered = sorted(members, key=_seed)
        count = next((n for n, run in enumerate(ordered) if run.path not in curves), len(ordered))
        scores = [score_of(curves[run.path], task.frames) for run in ordered[:count]]
        found.append(Candidate(label, ordered, scores))
    return found


def commands(one: Candidate, number: int, *, shares: int, trust: bool) -> list[Command]:
    """Return the commands that train the seeds that a group lacks, ``shares`` seeds at a time.

    They are the command of the group's first run, with directories next to that run's.
    """
    first, unfinished, new = one.runs[0], one.unfinished(number), one.new_seeds(number)
    if new and first.forked_from is not None:
        raise ConfigError(f"{first.path} is a branch of another run: no seed can be added to it.")
    place, name = first.path.absolute().parent, first.path.absolute().name
    own = name.removesuffix(f"seed{first.seed}")  # the runs of another group may be next to it
    prefix = own if own != name else f"{name}-"
    again = ["--resume", "latest"]
    lacking = [(run, [*place_of(run.path), *again]) for run in unfinished]
    if first.options.get("seeds") != OWN:
        lacking += [
            (first, ["--seed", str(seed), "--run-dir", str(place / f"{prefix}seed{seed}")])
            for seed in new
        ]
    elif new:
        words = ["--seeds", words_of_seeds(new), "--run-dir", str(place), *again]
        lacking.append((first, [*words, "--workers", str(shares)]))
    return [command_again(run.path, words, trust=trust) for run, words in lacking]


def _seed(run: RunSummary) -> int:
    if run.seed is None:
        raise ConfigError(f"{run.path} has no recorded seed, so none can be added to its group.")
    return run.seed
