"""Output shared by the commands: tables, JSON, sizes, times; and what RUN and CHECKPOINT name."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import filesize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..base.fs import write_atomically
from ..base.words import duration as duration
from ..base.words import listed, printable, shell_word, without_password
from ..errors import ConfigError
from ..store import Checkpoint, find
from ..store.lookup import checkpoint_directory, find_runs, no_run, sweep_of
from ..store.run_dir import RunDir, finite
from ..store.stored import NAME


def console(piped: int = 10_000) -> Console:
    """Return a console for verbatim text on stdout, of ``piped`` columns if that is no terminal."""
    width = None if sys.stdout.isatty() else piped
    return Console(highlight=False, markup=False, emoji=False, width=width)


def line(text: str) -> None:
    """Print a line of the result to stdout, with control characters escaped."""
    print(printable(text, keep="\n"), flush=True)


def note(text: str) -> None:
    """Print a line about progress to stderr, with control characters and passwords hidden."""
    print(without_password(printable(text, keep="\n")), file=sys.stderr, flush=True)


Column = str | Callable[[Any], object]
"""A key of the records, or a function of a record."""


def print_records(records: Sequence[Any], columns: Mapping[str, Column], *, json: bool) -> None:
    """Print mappings or dataclass objects as JSON, or as a table; ``columns`` are by heading."""
    if json:
        print_json(records)
        return

    def cell(record: Any, column: Column) -> object:
        if not isinstance(column, str):
            return column(record)
        return record.get(column) if isinstance(record, Mapping) else getattr(record, column)

    rows = [[cell(record, column) for column in columns.values()] for record in records]
    print_table(columns, rows)


def print_table(
    columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str | None = None
) -> None:
    """Print a table, with numbers aligned to the right; cells are folded on a narrow terminal.

    ``None`` is an empty cell, integers have commas, floats six digits; all other cells but
    `rich.text.Text` are plain text.
    """
    cells = [[_cell(content) for content in row] for row in rows]
    table = Table(title=title and printable(title), title_justify="left", title_style="bold")
    for index, name in enumerate(columns):
        numbers = all(_NUMBER.match(row[index].plain) for row in cells)
        table.add_column(printable(name), justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    screen = console()
    screen.width = max(screen.width, 6 * len(table.columns))  # with less, rich empties columns
    screen.print(table)


_NUMBER = re.compile(r"$|([-+<>≥]?\s?\d|-?(nan|inf)\b).{0,30}$")  # else it is a sentence


def _cell(content: Any) -> Text:
    if isinstance(content, Text):
        return content
    if isinstance(content, float):
        content = number(content)
    elif type(content) is int:
        content = f"{content:,}"
    return Text("" if content is None else printable(content, keep="\n"))


def good(text: str) -> Text:
    """Return a green cell."""
    return Text(printable(text), style="green")


def bad(text: str) -> Text:
    """Return a red cell."""
    return Text(printable(text), style="bold red")


def print_json(value: Any) -> None:
    """Print JSON; dataclasses become objects, NaN and infinities the texts nan, inf and -inf."""
    print(json.dumps(finite(value), indent=2, default=str, allow_nan=False))


size = filesize.decimal
"""Formats a number of bytes, such as ``12.3 MB``."""


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


def write(file: Path, content: str | bytes) -> None:
    """Write a file, and print where it is and its size."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content)
    note(f"wrote {file} ({size(file.stat().st_size)})")


# -- Finding what RUN, PLACE and CHECKPOINT on a command line name.


def require_directory(place: Path, thing: str = "run") -> None:
    """Raise FileNotFoundError, with names that are near, unless there is such a directory."""
    if not place.is_dir():
        raise FileNotFoundError(no_run(place, thing))


def runs_below(places: Iterable[Path]) -> list[RunDir]:
    """Find the runs below directories, each once, without those of sweeps further below."""
    found: dict[Path, tuple[RunDir, Path | None]] = {}
    for place in places:
        require_directory(place, "directory")
        for run in find_runs(place, onerror=lambda error: note(f"left out: {error}")):
            path, sweep = run.path.resolve(), sweep_of(run, place)
            if sweep is None or path not in found:
                found[path] = run, sweep
    for sweep in dict.fromkeys(sweep for _, sweep in found.values() if sweep is not None):
        note(f"left out: {sweep}: a sweep; its results: hooktrainer report {shell_word(sweep)}")
    return [run for run, sweep in found.values() if sweep is None]


def open_run(path: Path) -> RunDir:
    """Return the run in a directory, or raise FileNotFoundError."""
    require_directory(path)
    run = RunDir(path)
    if not run.holds_run and not any(NAME.fullmatch(one.name) for one in path.iterdir()):
        below = listed(sorted(one.parent for one in path.glob("*/run.json")), most=3)
        raise FileNotFoundError(
            f"{path} holds no run: no run.json, no checkpoints."
            + (f" Name one of its runs: {below}." if below else "")
        )
    return run


def checkpoints_of(run: Path) -> Path:
    """Return the directory of a run's checkpoints, or raise FileNotFoundError."""
    return checkpoint_directory(open_run(run).path)


def open_checkpoint(spec: str) -> Checkpoint:
    """Open the checkpoint that a RUN[@WHICH] names, or raise CheckpointError."""
    return Checkpoint.open(find(spec)[0])


# -- Working in the background, so that a run which trains meanwhile is not slowed down.


def step_aside() -> None:
    """Lower the priority of this process and limit PyTorch to one thread, for a run that trains."""
    import torch

    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):  # a system without priorities
        niceness = max(10, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
