"""`hooktrainer report`: estimates and comparisons of algorithms from the seeds that were run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..base.words import listed, plural
from ..errors import ConfigError
from ..store.run_dir import RunDir, read_config
from . import output
from .arguments import Count, Flag, OptionalCount, OptionalOutFile, Places, shown_as
from .runs import check_metrics

if TYPE_CHECKING:
    from ..show.report import RunSummary
    from ..show.report.analysis import Section
    from ..show.report.study import Study
    from ..statistics import Reference

Name = Annotated[str, shown_as("NAME")]
Group = Annotated[str | None, shown_as("GROUP")]
Score = Annotated[Literal["last", "tail", "best", "area"], shown_as("SCORE")]
Level = Annotated[float | None, shown_as("RETURN")]
_MOST_COMPARISONS = 20  # in a terminal; separated ones are first

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
    from ..show.report import summarize
    from ..show.report.analysis import analyze
    from ..show.report.report_page import report_page
    from ..show.report.study import read_study
    from ..statistics.scores import REFERENCES

    if html is not None:
        output.refuse_directory(html, "report.html")
    returns = metric.endswith("/return") and not minimize
    references = _references(reference, REFERENCES if returns else {})

    def read() -> tuple[list[RunSummary], Study]:
        runs = [summarize(run, metric=None) for run in _find(places)]
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
        from .until_decided import add_seeds_until_decided

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
        where = ", ".join(map(str, places))
        raise ConfigError(f"there is nothing to report on below {where}: no run counts.")
    sections = analyze(
        study,
        score=score,
        threshold=threshold,
        references=references,
        against=against,
        decision=decision,
    )
    if json:
        left_out = [{"run": path, "reason": why} for path, why in study.left_out]
        found = {"metric": metric, "minimize": minimize, "score": score, "confidence": 0.95}
        output.print_json({**found, "tasks": sections, "decision": decision, "left_out": left_out})
    for section in () if json else sections:
        print_section(section, score, metric)
    missing = [task.task for task in study.tasks if task.task not in references]
    if len(study.tasks) > 1 and missing:
        output.note(
            f"nothing over all tasks: {listed(missing)} without reference scores; give them with "
            "--reference FILE."
        )
    if html is not None:
        output.write_page(html, report_page(study, sections, score))
    return 0


def _find(places: Sequence[Path]) -> list[RunDir]:
    """Find the runs below directories, each once, without those of sweeps further below."""
    found = output.runs_below(places)
    for sweep in dict.fromkeys(sweep for _, sweep in found if sweep is not None):
        output.note(f"left out: {sweep}: a sweep; its results: hooktrainer report {sweep}")
    return [run for run, sweep in found if sweep is None]


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
    from ..show.report.analysis import comparison_texts, estimate_texts

    title = section.task or "runs"
    if section.frames is not None:
        less = " (less is better)" if section.minimize else ""
        title += f": {score} {metric}{less} at {section.frames:,.0f} frames"
    heads = ["IQM", "seeds", "median", "mean", "area"]
    if section.threshold is not None:
        heads += [f"reached {section.threshold:g}", "frames until", "time until"]
    rows = [[*estimate_texts(section, group), group.group] for group in section.groups]
    output.print_table([*heads, "group"], rows, title=title, optional=heads[2:])
    for note in section.notes:
        output.line(f"{note}.")
    if section.comparisons:
        heads = ["IQM difference", "P(improvement)", "p", "corrected", "so"]
        many = len(section.comparisons) > 1
        untested = all(one.p is None for one in section.comparisons)
        dropped = {"p", "corrected"} if untested else set() if many else {"corrected"}
        kept = [n for n, head in enumerate(heads) if head not in dropped]
        compared: list[list[object]] = [
            [*comparison_texts(one), output.good(one.verdict) if one.separated else one.verdict]
            for one in section.comparisons[:_MOST_COMPARISONS]
        ]
        output.print_table(
            [heads[n] for n in kept],
            [[row[n] for n in kept] for row in compared],
            optional=["p"] if many else [],
        )
        if (hidden := len(section.comparisons) - _MOST_COMPARISONS) > 0:
            output.line(f"{plural(hidden, 'more comparison')}: all are in --json, and in -o FILE.")
