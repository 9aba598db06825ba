"""What the commands have in common when they print: tables, JSON, sizes, times."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..words import duration as duration


def console(file: TextIO | None = None) -> Console:
    """A console on stdout, or on ``file``; as wide as need be where nobody reads it on a screen."""
    file = file or sys.stdout
    return Console(file=file, highlight=False, width=None if file.isatty() else 10_000)


def say(text: str) -> None:
    """Print a line about what goes on to stderr, so that stdout holds the result alone."""
    print(text, file=sys.stderr, flush=True)


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
) -> None:
    """Print a table.

    Args:
        columns: Headings.
        rows: The cells of each row; `rich.text.Text` keeps its style, anything else is shown as
            plain text.
        title: Stands above it.
        right: The columns that hold numbers.
    """
    table = Table(title=title, title_justify="left", title_style="bold")
    numbers = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console().print(table)


def good(text: str) -> Text:
    """A cell that says all is well."""
    return Text(text, style="green")


def bad(text: str) -> Text:
    """A cell that says something is wrong."""
    return Text(text, style="bold red")


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
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def number(value: float) -> str:
    """A metric for people: six digits."""
    return f"{value:.6g}"


def plural(count: int, noun: str) -> str:
    """Such as ``1 checkpoint``, ``2 checkpoints``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
