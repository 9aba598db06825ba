"""Results as tables in a terminal."""

from __future__ import annotations

import math

from results import Results, Verdict
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from suite import Limit

VERDICTS = {True: "[green]met[/]", False: "[bold red]short[/]", None: "[dim]not measured[/]"}


def print_tables(results: Results, console: Console) -> None:
    """Print the medians, hooktrainer's ratio to each row, and the verdict on each target."""
    console.print(f"\n[bold]{results.benchmark.title}[/]")
    console.print(medians(results))
    for row, why in results.missing.items():
        console.print(f" [dim]not measured: {row}: {escape(why)}[/]", highlight=False)
    if results.benchmark.targets:
        console.print(targets(results))


def medians(results: Results) -> Table:
    """Return the table of medians, with the ratios of hooktrainer's rows to all others."""
    benchmark = results.benchmark
    compared = [row for row in benchmark.compared if row in results.rows]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("median", no_wrap=True)
    for measure in benchmark.measures:
        table.add_column(measure.label, justify="right")
    table.add_column("rounds", justify="right")
    for row in compared:
        table.add_column(f"{row.replace(', ', chr(10))} is", justify="right")
    for row in results.rows:
        values = results.values(row)
        reached = sum(map(math.isfinite, values))
        table.add_row(
            row,
            *(number(results.median(row, i)) for i in range(len(benchmark.measures))),
            str(len(values)) if reached == len(values) else f"{reached} of {len(values)}",
            *("" if row == ours else times(results.ratio(ours, row)) for ours in compared),
            style="bold" if row.startswith("hooktrainer") else "",
        )
    return table


def targets(results: Results) -> Table:
    """Return the table of targets and verdicts."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("target", no_wrap=True)
    for heading in ("to reach", "measured", ""):
        table.add_column(heading, justify="right")
    for verdict in results.verdicts():
        table.add_row(*verdict_cells(results, verdict))
    return table


def verdict_cells(results: Results, verdict: Verdict) -> tuple[str, str, str, str]:
    """Return a target as a row: what, how much, what was measured, and whether it is met."""
    target, text = verdict.target, VERDICTS[verdict.met]
    if isinstance(target, Limit):
        label = results.benchmark.measures[target.measure].label
        return f"{target.ours}: {label}", f"≤ {target.bound:g}", number(verdict.value), text
    name = f"{target.ours} against {target.against}"
    return name, f"≥ {target.bound:g} x", times(verdict.value), text


def number(value: float | None) -> str:
    """Return a value with about three significant digits."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "not reached"
    if abs(value) >= 1000:
        return f"{round(value, -1):,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio: float | None) -> str:
    """Return a ratio as it is read: 2.31 x."""
    return "" if ratio is None or math.isnan(ratio) else f"{ratio:.2f} x"
