"""`hooktrainer watch`: a live view of a run, read from its directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..base.endings import ENDED
from ..base.words import printable, shell_word
from ..errors import ConfigError
from ..store.lookup import find_runs, no_run
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, OptionalRun, Seconds

if TYPE_CHECKING:
    from ..show.report import Curve, RunSummary


_BAR = 40
_MOST = 4  # hooks shown, slowest first
_FIRST = ("eval/return", "eval/return_std", "eval/length", "train/return", "train/length")


def watch(
    run: OptionalRun = Path("runs"),
    /,
    *,
    once: Flag = False,
    interval: Seconds = 0.5,
) -> int:
    """Watch a run while it trains: its progress, its metrics, and the time of its phases.

    Reads only the run's directory, so the run is not slowed down. Ctrl-C ends the watching, not the
    run. Ends when the run does. In a pipe it prints the current state, and then the final one.

    The exit code is 1 if the run has failed, or its process has died.

    Args:
        run: directory of the run, or of several: then the one begun last; by default runs/
        once: print the current state, and exit
        interval: seconds between two looks, by default 0.5
    """
    from ..show.report import read_curves, summarize

    if not interval > 0:
        raise ConfigError(f"--interval {interval}: give a positive number of seconds.")
    place = _newest(run)
    width = None if sys.stdout.isatty() else 100
    screen = Console(highlight=False, markup=False, emoji=False, width=width)
    known: dict[int, Mapping[str, Curve]] = {}  # the curves by the size of the file

    def look() -> tuple[RunSummary, RenderableType]:
        summary = summarize(place, metric=None)
        size = place.metrics.stat().st_size if place.metrics.is_file() else 0
        if size not in known:
            known.clear()
            with suppress(ConfigError, ValueError):
                known[size] = read_curves(place)
        rows = None if once else screen.height
        return summary, frame(summary, known.get(size, {}), rows)

    summary, picture = look()
    ended = summary.status != "running"
    if once or ended or not screen.is_terminal:
        screen.print(picture)
        sys.stdout.flush()
    if once or ended:
        return _code(summary)
    try:
        with Live(picture, console=screen, refresh_per_second=8, transient=False) as live:
            while summary.status == "running":
                time.sleep(interval)
                summary, picture = look()
                live.update(picture)
    except KeyboardInterrupt:
        output.note(
            f"the run continues; watch it again with: hooktrainer watch {shell_word(place.path)}"
        )
        return 0
    return _code(summary)


def frame(
    summary: RunSummary, curves: Mapping[str, Curve], rows: int | None = None
) -> RenderableType:
    """Draw the state of a run in a number of lines, by default unlimited."""
    head = Text()
    head.append(printable(summary.experiment or summary.path), style="bold")
    head.append(f" · seed {printable(summary.seed)}" if summary.seed is not None else "")
    head.append(" · ")
    head.append(printable(summary.status), style=_COLOR.get(summary.status, "bold red"))
    head.append(f" · {printable(summary.path)}", style="dim")
    parts: list[RenderableType] = [head, _progress(summary, curves)]
    if note := _note(summary):
        parts.append(note)
    values = _latest(curves) or summary.metrics
    times = {name[5:]: value for name, value in values.items() if name.startswith("time/")}
    phases = _phases(times) if times.get("step") else None
    room = None if rows is None else max(4, rows - 8 - (phases.row_count + 5 if phases else 0))
    if any(not name.startswith("time/") for name in values):
        parts += ["", _metrics(values, curves, room)]
    if phases:
        parts += ["", phases]
    return Group(*parts)


_COLOR = {
    "running": "bold cyan",
    **dict.fromkeys(ENDED, "bold green"),
    "interrupted": "bold yellow",
}


def _progress(summary: RunSummary, curves: Mapping[str, Curve]) -> RenderableType:
    line = Text()
    fps = {**summary.metrics, **_latest(curves)}.get("time/fps")
    if summary.total_frames:
        part = min(1.0, summary.frames / summary.total_frames)
        full = round(part * _BAR)
        line.append("━" * full, style=_COLOR.get(summary.status, "red").split()[-1])
        line.append("━" * (_BAR - full), style="bright_black")
        line.append(f" {part:.0%}  {summary.frames:,} of {summary.total_frames:,} frames")
    else:
        line.append(f"{summary.frames:,} frames")
    line.append(f"  {summary.optim_steps:,} optimizer steps", style="dim")
    line.append(f"\n{output.duration(summary.seconds)} trained")
    if fps:
        line.append(f" · {fps:,.0f} frames/s")
        left = (summary.total_frames or 0) - summary.frames
        if summary.status == "running" and left > 0:
            line.append(f" · {output.duration(left / fps)} left")
    return line


def _latest(curves: Mapping[str, Curve]) -> dict[str, float]:
    return {name: float(curve.values[-1]) for name, curve in curves.items() if len(curve.values)}


def _note(summary: RunSummary) -> RenderableType | None:
    age = "" if summary.updated is None else output.duration(time.time() - summary.updated)
    if summary.status == "died":
        return Text(
            f"Its process is gone; last heard of {age} ago. hooktrainer resume "
            f"{shell_word(summary.path)} continues from its latest checkpoint.",
            style="bold red",
        )
    if summary.reason:
        return Text(printable(summary.reason), style=_COLOR.get(summary.status, "bold red"))
    silent = summary.updated is not None and time.time() - summary.updated > 30
    if summary.status == "running" and silent:
        return Text(f"Last heard of {age} ago.", style="yellow")
    return None


def _metrics(values: Mapping[str, float], curves: Mapping[str, Curve], room: int | None) -> Table:
    from ..show.report.terminal import sparkline

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("metric")
    table.add_column("now", justify="right")
    table.add_column("least", justify="right", style="dim")
    table.add_column("most", justify="right", style="dim")
    table.add_column("over the run")
    names = [name for name in values if not name.startswith("time/")]
    names.sort(key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n.split("/")[0]))
    for name in names[:room]:
        curve = curves[name].values.tolist() if name in curves else []
        table.add_row(
            Text(printable(name)),
            output.number(values[name]),
            output.number(min(curve)) if curve else "",
            output.number(max(curve)) if curve else "",
            Text(sparkline(curve), style="cyan"),
        )
    if room is not None and len(names) > room:
        table.add_row(f"and {len(names) - room} more", style="dim")
    return table


def _phases(times: Mapping[str, float]) -> Table:
    from ..loop.time_table import CONCURRENT, TimeRow, bar_of, concurrent_rows, serial_rows

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("phase")
    table.add_column("ms a batch", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    whole = times["step"]

    def add(row: TimeRow) -> None:
        part = row.seconds / whole
        bar = Text("" if row.depth else bar_of(part), style="cyan")
        name = Text("  " * row.depth + printable(row.label))
        style = "dim" if row.depth else None
        table.add_row(name, f"{1000 * row.seconds:,.2f}", f"{part:.1%}", bar, style=style)

    for row in serial_rows(times):
        add(row)
    table.add_row("step", f"{1000 * whole:,.2f}", "100%", style="bold")
    for group, title in ({"hook": "of it, in hooks"} | CONCURRENT).items():
        if rows := concurrent_rows(times, group)[:_MOST]:
            table.add_row(title, style="dim")
            for row in rows:
                add(row)
    return table


def _newest(place: Path) -> RunDir:
    """Return the run in a directory, or the one begun last below it."""
    if RunDir(place).run_file.exists():
        return RunDir(place)
    if not place.is_dir():
        raise FileNotFoundError(no_run(place))
    if not (found := find_runs(place)):
        raise FileNotFoundError(f"{place} holds no run: no run.json in it or below.")
    return found[-1]


def _code(summary: RunSummary) -> int:
    return 1 if summary.status in ("failed", "died") else 0
