"""`hooktrainer runs`: lists runs and compares them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction

from ..base.endings import ENDED
from ..base.plain import flatten_config
from ..base.words import did_you_mean, listed, plural
from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, Places, shown_as

if TYPE_CHECKING:
    from ..show import Group, RunSummary

Metrics = Annotated[UseAppendAction[tuple[str, ...]], shown_as("NAME")]
Conditions = Annotated[UseAppendAction[tuple[str, ...]], shown_as("OPTION=VALUE")]
Name = Annotated[str, shown_as("COLUMN")]

_SORTS = ("started", "run", "experiment", "seed", "status", "frames", "time", "last", "best", "age")


def runs(
    places: Places = (Path("runs"),),
    /,
    *,
    metric: Metrics = (),
    minimize: Flag = False,
    where: Conditions = (),
    sort: Name = "started",
    reverse: Flag = False,
    curves: Flag = False,
    json: Flag = False,
) -> int:
    """List runs and compare them: a table, and curves in the terminal.

    A run whose process is gone without having recorded its end is listed as died. Runs of a sweep
    are listed if PLACE is its directory. Runs with the same options are a group, whatever their
    seeds; curves show the mean and spread of each group. Of several runs with the same
    seed and options, the longest counts, and of these the one that finished last.

    Example: hooktrainer runs out --where lr=0.001 --sort best --curves

    Args:
        places: runs, and directories with runs anywhere below; runs/ if none is given
        metric: by default eval/return; may be repeated: the first is in the table, all are drawn
        minimize: less of the metric is better
        where: only runs with this value of an option, or such as experiment='ppo*' and
            status=failed; may be repeated
        sort: by started; or run, experiment, seed, status, frames, time, age, an option; last or
            best: the best first
        reverse: reverse the order
        curves: draw the curves of the metrics in the terminal
        json: print JSON: a list with one object per run
    """
    from ..show import group_runs, summarize
    from ..show.report.grouping import repeat_note

    metrics = list(metric) or ["eval/return"]
    below = output.runs_below(places)
    found = [summarize(run, metrics[0], minimize=minimize) for run in below]
    damaged = [run for run in found if run.status == "unknown" and run.reason]
    for run in damaged:
        output.note(f"not read: {run.reason}")
    check_metrics(metric, found)
    if not metric and found and all(run.last is None for run in found):
        metrics = ["train/return"]  # nothing was evaluated
        found = [summarize(run, metrics[0], minimize=minimize) for run in below]
    chosen = _sorted(_chosen(found, where), sort, reverse, minimize)
    if chosen or json:
        output.print_records(chosen, _columns(chosen, metrics[0]), json=json)
    else:
        hidden = f" ({plural(len(found), 'run')} not shown)" if found else ""
        output.line(f"no such run below {', '.join(map(str, places))}{hidden}.")
    if not curves or json:
        return 0
    groups = group_runs([run for run in chosen if run not in damaged])
    for pair in (pair for group in groups for pair in group.repeats):
        output.note(f"{pair[0].path} {repeat_note(*pair)}.")
    for name in metrics if chosen else ():
        _print_curves(groups, name)
    return 0


def check_metrics(names: Sequence[str], runs: Sequence[RunSummary]) -> None:
    """Refuse a metric that no run has logged, if runs have logged others."""
    from ..show.curves import read_curves

    known = {name for run in runs for name in run.metrics}
    for name in names:
        if name in known or any(run.metric == name and run.last is not None for run in runs):
            continue
        for run in runs:
            with suppress(ConfigError):  # its file is damaged
                known |= read_curves(RunDir(run.path)).keys()
        if known and name not in known:
            near = did_you_mean(name, sorted(known)) or f" There are {listed(sorted(known))}."
            raise ConfigError(f"--metric {name}: no run has logged it.{near}")


def _chosen(runs: Sequence[RunSummary], where: Sequence[str]) -> list[RunSummary]:
    conditions = [condition.partition("=") for condition in where]
    for name, equals, value in conditions:
        if not equals:
            raise ConfigError(f"--where {name}: write OPTION=VALUE, such as lr=0.001.")
        known = {"experiment", "status", *(n for run in runs for n in flatten_config(run.options))}
        if runs and name.replace("-", "_") not in known:
            near = did_you_mean(name, sorted(known))
            raise ConfigError(f"--where {name}={value}: no run has an option {name}.{near}")
    return [
        run
        for run in runs
        if all(_same(_option(run, name), value) for name, _, value in conditions)
    ]


def _option(run: RunSummary, name: str) -> Any:
    if name in ("experiment", "status"):
        return getattr(run, name)
    return flatten_config(run.options).get(name.replace("-", "_"))


def _same(value: Any, text: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(ValueError):
            return float(text) == value
    return fnmatch(str(value).lower(), text.lower())


def _sorted(
    runs: Sequence[RunSummary], column: str, reverse: bool, minimize: bool
) -> list[RunSummary]:
    if runs and column not in _SORTS and all(_option(run, column) is None for run in runs):
        near = did_you_mean(column, _SORTS)
        raise ConfigError(f"--sort {column}: sort by {', '.join(_SORTS)}, or an option.{near}")
    attribute = {"run": "path", "time": "seconds", "age": "updated"}.get(column, column)

    def value(run: RunSummary) -> Any:
        return getattr(run, attribute) if column in _SORTS else _option(run, column)

    known = [run for run in runs if value(run) is not None]
    falling = column == "age" or (column in ("last", "best") and not minimize)
    try:
        ordered = sorted(known, key=value, reverse=falling != reverse)
    except TypeError:  # of several types
        ordered = sorted(known, key=lambda run: str(value(run)), reverse=falling != reverse)
    return ordered + [run for run in runs if value(run) is None]


def _columns(runs: Sequence[RunSummary], metric: str) -> dict[str, output.Column]:
    from ..show.report.grouping import configuration, differing, lineage, short
    from ..show.report.summary import units_of

    now = time.time()
    columns: dict[str, output.Column] = {
        "run": "path",
        "experiment": "experiment",
        "seed": lambda run: None if run.seed is None else str(run.seed),
        "status": _status,
        units_of(runs): "frames",
        "time": lambda run: output.duration(run.seconds),
        metric: "last",
        "best": "best",
        "age": lambda run: run.updated and output.duration(now - run.updated),
    }
    if any(run.forked_from is not None for run in runs):
        columns["forked from"] = lambda run: lineage(run, runs)

    def option(name: str, run: RunSummary) -> str | None:
        config = configuration(run)
        return short(config[name]) if name in config else None

    return columns | {name: partial(option, name) for name in differing(runs)}


def _status(run: RunSummary) -> object:
    if run.status in ("failed", "died"):
        return output.bad(run.status)
    return output.good(run.status) if run.status in ENDED else run.status


def _print_curves(groups: Sequence[Group], metric: str) -> None:
    from ..show.chart import sparkline
    from ..show.curves import band, read_curves
    from ..show.report.grouping import spread
    from ..show.report.summary import units_of

    drawn = []
    for group in groups:
        curves = [read_curves(RunDir(run.path), [metric]).get(metric) for run in group.runs]
        having = [curve for curve in curves if curve is not None]
        if having and len((mean := band(having)).frames):
            drawn.append((group.label, having, mean))
    if not drawn:
        output.line(f"{metric}: no run has logged it.")
        return
    ends = [float(end) for *_, mean in drawn for end in (mean.middle.min(), mean.middle.max())]
    scale, width = (min(ends), max(ends)), min(60, output.console().width // 3)
    rows = [
        (
            label,
            len(having),
            int(mean.frames[-1]),
            sparkline(mean.middle, width, scale),
            spread([float(curve.values[-1]) for curve in having]),
        )
        for label, having, mean in drawn
    ]
    unit = units_of([run for group in groups for run in group.runs])
    output.line(f"{metric} over {unit}, {scale[0]:.6g} to {scale[1]:.6g}:")
    output.print_table(("group", "runs", unit, "curve", "last"), rows)
