"""Output shared by the commands: tables, JSON, sizes, times; and what RUN and CHECKPOINT name."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..base.text_file import write_atomically
from ..base.words import duration as duration
from ..base.words import printable
from ..errors import ConfigError
from ..store import Best, Checkpoint, find
from ..store.lookup import checkpoint_directory, find_runs, no_run, sweep_of
from ..store.run_dir import RunDir
from ..store.stored import NAME


def console() -> Console:
    """Return a console for verbatim text on stdout, of unbounded width if that is no terminal."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, width=width)


def line(text: str) -> None:
    """Print a line of the result to stdout, with control characters escaped."""
    print(printable(text, keep="\n"), flush=True)


def note(text: str) -> None:
    """Print a line about progress to stderr, with control characters escaped."""
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
    optional: Iterable[str] = (),
) -> None:
    """Print a table; all cells but `rich.text.Text` are plain text.

    Columns in ``right`` are numbers. Columns in ``optional`` are dropped on a narrow terminal, the
    last one first, and listed on stderr.
    """
    columns, numbers, screen = list(columns), set(right), console()
    cells = [[_cell(c) for c in row] for row in rows]
    kept, left_out = list(range(len(columns))), list[str]()
    spare = [index for index in kept if columns[index] in set(optional)]

    def table() -> Table:
        made = Table(
            title=None if title is None else printable(title),
            title_justify="left",
            title_style="bold",
        )
        for index in kept:
            justify: Literal["left", "right"] = "right" if columns[index] in numbers else "left"
            made.add_column(printable(columns[index]), justify=justify, overflow="fold")
        for row in cells:
            made.add_row(*(row[index] for index in kept))
        return made

    unbounded = screen.options.update(width=10_000)
    while spare and Measurement.get(screen, unbounded, table()).maximum > screen.width:
        kept.remove(index := spare.pop())
        left_out.insert(0, columns[index])
    screen.print(table())
    if left_out:
        note(f"too narrow for: {', '.join(left_out)}")


def _cell(content: Any) -> Text:
    return content if isinstance(content, Text) else Text(printable(content, keep="\n"))


def good(text: str) -> Text:
    """Return a green cell."""
    return Text(printable(text), style="green")


def bad(text: str) -> Text:
    """Return a red cell."""
    return Text(printable(text), style="bold red")


def print_json(value: Any) -> None:
    """Print JSON; NaN and infinities become the texts nan, inf and -inf."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def size(nbytes: int) -> str:
    """Format a number of bytes, such as ``12.3 MB``; a kB has 1,000 bytes."""
    if nbytes < 1000:
        return f"{nbytes} B"
    power = 1 if nbytes < 999_950 else 2 if nbytes < 999_950_000 else 3
    return f"{nbytes / 1000**power:,.1f} {' kMG'[power]}B"


def when(seconds: float) -> str:
    """Format a time in seconds since 1970 as local time."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # not a date
        return f"{seconds} s"


def number(value: float) -> str:
    """Format a metric with six digits."""
    return f"{value:.6g}"


def refuse_directory(file: Path, example: str) -> None:
    """Raise `ConfigError` if a file to write is a directory; ``example`` is a suggested name."""
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: name a file, such as {file / example}.")


def confirm(question: str) -> bool:
    """Ask at the terminal; anything but y or yes is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def write_page(file: Path, page: str) -> None:
    """Write a page and print where it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, page)
    note(f"wrote {file}")


# -- Finding what RUN, PLACE and CHECKPOINT on a command line name.


def runs_below(places: Iterable[Path]) -> list[tuple[RunDir, Path | None]]:
    """Find the runs below directories, each once, and the sweeps further below they belong to."""
    found: dict[Path, tuple[RunDir, Path | None]] = {}
    for place in places:
        if not place.is_dir():
            raise FileNotFoundError(no_run(place, "directory"))
        for run in find_runs(place, onerror=lambda error: note(f"left out: {error}")):
            path, sweep = run.path.resolve(), sweep_of(run, place)
            if sweep is None or path not in found:
                found[path] = run, sweep
    return list(found.values())


def checkpoints_of(run: Path) -> Path:
    """Return the directory of a run's checkpoints, or raise FileNotFoundError."""
    if not run.is_dir():
        raise FileNotFoundError(no_run(run))
    if not RunDir(run).holds_run and not any(NAME.fullmatch(path.name) for path in run.iterdir()):
        raise FileNotFoundError(f"{run} holds no run: no run.json, no checkpoints.")
    return checkpoint_directory(run)


def open_checkpoint(spec: str) -> Checkpoint:
    """Open the checkpoint that a RUN[@WHICH] names, or raise CheckpointError."""
    return Checkpoint.open(find(spec)[0])


def recorded_best(checkpoints: list[Checkpoint]) -> Best | None:
    """Return the rule by which the run itself selects its best checkpoint, if it has one."""
    for checkpoint in reversed(checkpoints):
        if (best := checkpoint.manifest.best) is not None:
            return Best(1, best["metric"], "min" if best["mode"] == "min" else "max")
    return None


# -- Working in the background, so that a run which trains meanwhile is not slowed down.

_NICENESS: Final = 10


def step_aside() -> None:
    """Lower the priority of this process and limit PyTorch to one thread, for a run that trains."""
    import torch

    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):  # a system without priorities
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
