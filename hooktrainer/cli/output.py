"""What the commands have in common when they print: tables, JSON, sizes, times."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..base.words import duration as duration
from ..base.words import printable
from ..errors import ConfigError
from ..store import Best, Checkpoint, find
from ..store.lookup import checkpoint_directory, no_run
from ..store.run_dir import RunDir
from ..store.stored import NAME


def console(file: TextIO | None = None) -> Console:
    """A console on stdout, or on ``file``; as wide as need be where nobody reads it on a screen.

    Text is shown as it is: names out of files may look like rich's markup.
    """
    file = file or sys.stdout
    width = None if file.isatty() else 10_000
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def tell(text: str) -> None:
    """Print a line of the result to stdout; as in `say`, what a terminal would obey is shown."""
    print(printable(text, keep="\n"), flush=True)


def say(text: str) -> None:
    """Print a line about what goes on to stderr, so that stdout holds the result alone.

    Names of files, runs and environments are somebody else's: what a terminal would obey is shown.
    """
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
    optional: Iterable[str] = (),
) -> None:
    """Print a table.

    Args:
        columns: Headings.
        rows: The cells of each row; `rich.text.Text` keeps its style, anything else is shown as
            plain text.
        title: Stands above it.
        right: The columns that hold numbers.
        optional: The columns that a narrow terminal may do without, the last of the table first; a
            line on stderr names those that are left out.
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
        say(f"too narrow for: {', '.join(left_out)}")


def _cell(content: Any) -> Text:
    return content if isinstance(content, Text) else Text(printable(content, keep="\n"))


def good(text: str) -> Text:
    """A cell that says all is well."""
    return Text(printable(text), style="green")


def bad(text: str) -> Text:
    """A cell that says something is wrong."""
    return Text(printable(text), style="bold red")


def print_json(value: Any) -> None:
    """Print JSON. NaN and infinities, which it lacks, become the texts nan, inf and -inf."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def size(nbytes: int) -> str:
    """A number of bytes for people, such as ``12.3 MB``; a kB has 1,000 bytes."""
    if nbytes < 1000:
        return f"{nbytes} B"
    power = 1 if nbytes < 999_950 else 2 if nbytes < 999_950_000 else 3
    return f"{nbytes / 1000**power:,.1f} {' kMG'[power]}B"


def when(seconds: float) -> str:
    """A time in seconds since 1970, on the clock of this machine."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a time no calendar has
        return f"{seconds} s"


def number(value: float) -> str:
    """A metric for people: six digits."""
    return f"{value:.6g}"


def refuse_directory(file: Path, example: str) -> None:
    """Refuse a directory where a file is to be written, before the work is done.

    Args:
        file: Where to write.
        example: The name of such a file.

    Raises:
        ConfigError: If it is a directory.
    """
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: name a file, such as {file / example}.")


def confirm(question: str) -> bool:
    """Ask the person at the terminal; anything but y or yes is no."""
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


# -- Finding what RUN and CHECKPOINT on a command line stand for.


def checkpoints_of(run: Path) -> Path:
    """Return where a run keeps its checkpoints.

    Raises:
        FileNotFoundError: If there is no such run.
    """
    if not run.is_dir():
        raise FileNotFoundError(no_run(run))
    if not RunDir(run).holds_run and not any(NAME.fullmatch(path.name) for path in run.iterdir()):
        raise FileNotFoundError(f"{run} holds no run: no run.json, no checkpoints.")
    return checkpoint_directory(run)


def open_checkpoint(spec: str) -> Checkpoint:
    """Return the checkpoint that a word on the command line names.

    Raises:
        CheckpointError: If there is none, or its manifest is damaged.
    """
    return Checkpoint.open(find(spec)[0])


def recorded_best(checkpoints: list[Checkpoint]) -> Best | None:
    """Return what the run itself counts as its best checkpoint, if it does."""
    for checkpoint in reversed(checkpoints):
        if (best := checkpoint.manifest.best) is not None:
            return Best(1, best["metric"], "min" if best["mode"] == "min" else "max")
    return None


# -- Working in the background, so that a run which trains meanwhile is not slowed down.

_NICENESS: Final = 10


def step_aside() -> None:
    """Give this process a low priority, and PyTorch one thread: there is always another run."""
    import torch

    torch.set_num_threads(1)
    with suppress(OSError, AttributeError):  # a system without priorities
        niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
