"""`hooktrainer watch`: a live view of a run, read from its directory."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..base.checks import check_positive
from ..base.endings import ENDED
from ..base.words import printable, shell_word
from ..errors import ConfigError
from ..store.lookup import find_runs
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, OptionalRun, Seconds

if TYPE_CHECKING:
    from ..show import Curve, RunSummary


_BAR = 40
_MOST = 4  # hooks shown, slowest first
_FIRST = ("eval/return", "eval/return_std", "eval/length", "train/return", "train/length")


def watch(
    run: OptionalRun = Path("runs"), /, *, once: Flag = False, interval: Seconds = 0.5
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
    from ..show import read_curves, summarize

    check_positive("--interval", interval, "number of seconds")
    place = _newest(run)
    screen = output.console(piped=100)

    @functools.lru_cache(maxsize=1)
    def curves(size: int) -> Mapping[str, Curve]:
        with suppress(ConfigError, ValueError):
            return read_curves(place) if size else {}
        return {}

    def look() -> tuple[RunSummary, RenderableType]:
        summary = summarize(place, metric=None)
        size = place.metrics.stat().st_size if place.metrics.is_file() else 0
        return summary, frame(summary, curves(size))

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


def frame(summary: RunSummary, curves: Mapping[str, Curve]) -> RenderableType:
    """Draw the state of a run; the times come last, since a low terminal cuts off the end."""
    latest = {name: float(one.values[-1]) for name, one in curves.items()}
    values = latest or summary.metrics
    phases = _phases({n[5:]: value for n, value in values.items() if n.startswith("time/")})
    seed = "" if summary.seed is None else f" · seed {summary.seed}"
    head = Text.assemble(
        (printable(summary.experiment or summary.path), "bold"),
        f"{printable(seed)} · ",
        (printable(summary.status), _color(summary)),
        (f" · {printable(summary.path)}", "dim"),
    )
    about = head, _progress(summary, values), _note(summary)
    parts = (*about, _metrics(values, curves), phases and Group("", phases))
    return Group(*(part for part in parts if part))


def _color(summary: RunSummary) -> str:
    known = {"running": "bold cyan", "interrupted": "bold yellow"}
    return "bold green" if summary.status in ENDED else known.get(summary.status, "bold red")


def _progress(summary: RunSummary, values: Mapping[str, float]) -> RenderableType:
    line, total, fps = Text(), summary.total_frames or 0, values.get("time/fps")
    part = min(1.0, summary.frames / total) if total else 0.0
    line.append("━" * round(part * _BAR), style=_color(summary).split()[-1])
    line.append("━" * (_BAR - round(part * _BAR)), style="bright_black")
    line.append(f" {part:.0%}  {summary.frames:,}{f' of {total:,}' * (total > 0)} {summary.unit}")
    line.append(f"  {summary.optim_steps:,} optimizer steps", style="dim")
    line.append(f"\n{output.duration(summary.seconds)} trained")
    if fps:
        line.append(f" · {fps:,.0f} {summary.unit}/s")
        if summary.status == "running" and (left := total - summary.frames) > 0:
            line.append(f" · {output.duration(left / fps)} left")
    return line


def _note(summary: RunSummary) -> RenderableType | None:
    silence = 0.0 if summary.updated is None else time.time() - summary.updated
    if summary.status == "died":
        return Text(
            f"Its process is gone; last heard of {output.duration(silence)} ago. hooktrainer "
            f"resume {shell_word(summary.path)} continues from its latest checkpoint.",
            style="bold red",
        )
    return Text(printable(summary.reason), style=_color(summary)) if summary.reason else None


def _metrics(values: Mapping[str, float], curves: Mapping[str, Curve]) -> RenderableType | None:
    from ..show.chart import sparkline

    names = [name for name in values if not name.startswith("time/")]
    names.sort(key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n.split("/")[0]))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head, style in (("metric", ""), ("now", ""), ("least", "dim"), ("most", "dim")):
        table.add_column(head, style=style, justify="left" if head == "metric" else "right")
    table.add_column("over the run", style="cyan")
    for name in names:
        curve = curves[name].values.tolist() if name in curves else []
        numbers = [values[name], *((min(curve), max(curve)) if curve else ())]
        cells = [*map(output.number, numbers), "", ""][:3]
        table.add_row(Text(printable(name)), *cells, sparkline(curve))
    return Group("", table) if names else None


def _phases(times: Mapping[str, float]) -> Table | None:
    from ..loop.timing import time_table

    if not times.get("step"):
        return None
    hooks = sorted((n for n in times if n.startswith("hook/")), key=lambda n: -times[n])
    shown = {name: value for name, value in times.items() if name not in hooks[_MOST:]}
    return time_table(shown, title=None, unit="ms a batch", scale=1000.0)


def _newest(place: Path) -> RunDir:
    """Return the run in a directory, or the one begun last below it."""
    output.require_directory(place)
    if not (found := find_runs(place)):
        raise FileNotFoundError(f"{place} holds no run: no run.json in it or below.")
    return found[-1]


def _code(summary: RunSummary) -> int:
    return 1 if summary.status in ("failed", "died") else 0
