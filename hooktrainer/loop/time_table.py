"""The time of a run as a table of phases and their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from ..base.words import printable

CONCURRENT: Final = {"worker": "beside the loop"}
"""Title of each group of times that are not part of the loop's own."""

_LEAST = 0.001  # share of all of it below which a hook is left out


class TimeRow(NamedTuple):
    """One row of the table."""

    label: str
    seconds: float
    depth: int


def serial_rows(
    times: Mapping[str, float], hooks: Mapping[str, str] | None = None
) -> list[TimeRow]:
    """Return the serial phases, longest first, each followed by its parts."""
    phases = [name for name in times if "/" not in name and name not in ("step", "fps")]
    rows: list[TimeRow] = []
    for phase in sorted(phases, key=lambda name: -times[name]):
        rows.append(TimeRow(phase, times[phase], 0))
        rows += _parts(phase, times, hooks or {})
    return rows


def _parts(phase: str, times: Mapping[str, float], hooks: Mapping[str, str]) -> list[TimeRow]:
    parts = {n.removeprefix(f"{phase}/"): t for n, t in times.items() if n.startswith(f"{phase}/")}
    inside = [name for name, where in hooks.items() if where == phase and name in times]
    if len(inside) > 1 or phase in ("hooks", "optimize"):  # a single one is the phase itself
        least = _LEAST * times.get("step", 0.0)
        parts |= {name.partition("/")[2]: times[name] for name in inside if times[name] > least}
    rows = [TimeRow(name, time, 1) for name, time in parts.items()]
    return sorted(rows, key=lambda row: -row.seconds)


def concurrent_rows(times: Mapping[str, float], group: str) -> list[TimeRow]:
    """Return the times of a group such as ``"worker"``, longest first, with their parts."""
    inside = {n.partition("/")[2]: t for n, t in times.items() if n.startswith(f"{group}/") and t}
    rows: list[TimeRow] = []
    for name in sorted(inside, key=lambda name: -inside[name]):
        if name.rpartition("/")[0] not in inside:
            rows.append(TimeRow(name, inside[name], 1))
            rows += [row._replace(depth=2) for row in _parts(name, inside, {})]
    return rows


def time_table(
    times: Mapping[str, float],
    hooks: Mapping[str, str],
    *,
    title: str | None = "Where the time went",
    unit: str = "seconds",
    scale: float = 1.0,
    groups: Mapping[str, str] = CONCURRENT,
) -> Table:
    """Return a table of times and shares; ``scale`` units are a second."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase")
    table.add_column(unit, justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    rows = serial_rows(times, hooks)
    serial = sum(row.seconds for row in rows if not row.depth)
    whole = max(times.get("step", 0.0), serial)  # a batch that failed is in no step

    def add(row: TimeRow, style: str | None = None, has_bar: bool = True) -> None:
        part = row.seconds / whole if whole else 0.0
        share = f"{part:.1%}" if whole else ""
        bar = Text("" if row.depth or not has_bar else bar_of(part), style="cyan")
        table.add_row(
            Text("  " * row.depth + printable(row.label)),
            f"{scale * row.seconds:,.2f}",
            share,
            bar,
            style=style,
        )

    for row in rows:
        add(row, "dim" if row.depth else None)
    rest = whole - serial
    if rest > 0.001 * whole:
        add(TimeRow("in between", rest, 0))
    table.add_section()
    add(TimeRow("all of it", whole, 0), "bold", has_bar=False)
    for group, heading in groups.items():
        if beside := concurrent_rows(times, group):
            table.add_section()
            table.add_row(heading)
            for row in beside:
                add(row, "dim")
    return table


def bar_of(part: float, width: int = 24) -> str:
    """Return a bar of ``part`` of the width, at most all of it."""
    return "█" * round(min(part, 1.0) * width)
