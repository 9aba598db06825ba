"""Curves in a terminal: braille plots and sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

from ..chart import ticks

COLORS = ("cyan", "yellow", "magenta", "green", "red", "blue", "bright_cyan", "bright_yellow")

_BLOCKS = "▁▂▃▄▅▆▇█"
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""Bits of the dots of a braille character, by row and column."""


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Return the finite values of a curve as a line of blocks, each the mean of its part."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if not len(finite):
        return ""
    parts = [part.mean() for part in np.array_split(finite, min(width, len(finite)))]
    low, high = min(parts), max(parts)
    span = high - low
    levels = [0 if not span else round((part - low) / span * 7) for part in parts]
    return "".join(_BLOCKS[level] for level in levels)


def plot_lines(
    lines: Sequence[tuple[Sequence[float], Sequence[float]]], *, width: int = 80, height: int = 14
) -> Text:
    """Draw lines, given by x and y, over a pair of axes, each in a colour of `COLORS`."""
    xs = np.concatenate([np.asarray(x, np.float64) for x, _ in lines])
    ys = np.concatenate([np.asarray(y, np.float64) for _, y in lines])
    y_ticks, y_low, y_high = ticks(float(ys.min()), float(ys.max()), max(2, height // 3))
    x_low, x_high = float(xs.min()), float(xs.max())
    labels = {
        round((1 - (value - y_low) / (y_high - y_low)) * (height - 1)): name
        for value, name in y_ticks
    }
    margin = max(map(len, labels.values())) + 1
    columns = max(10, width - margin - 1)
    cells = np.zeros((height, columns), np.int64)
    owner = np.zeros((height, columns), np.int64)
    for index, (x, y) in enumerate(lines):
        at = _scaled(x, x_low, x_high, 2 * columns)
        up = 4 * height - 1 - _scaled(y, y_low, y_high, 4 * height)
        for column, row in _joined(at, up):
            cells[row // 4, column // 2] |= _DOTS[row % 4, column % 2]
            owner[row // 4, column // 2] = index
    picture = Text(no_wrap=True)
    for row in range(height):
        label = labels.get(row, "")
        picture.append(f"{label:>{margin}}{'┤' if label else '│'}", style="dim")
        for column in range(columns):
            character = chr(0x2800 + cells[row, column]) if cells[row, column] else " "
            picture.append(character, style=COLORS[owner[row, column] % len(COLORS)])
        picture.append("\n")
    return picture.append_text(_x_axis(x_low, x_high, margin, columns))


def _x_axis(low: float, high: float, margin: int, columns: int) -> Text:
    text = [" "] * columns
    line = ["─"] * columns
    for value, name in ticks(low, high, max(2, columns // 14))[0]:
        if low <= value <= high:
            place = 0 if high == low else round((value - low) / (high - low) * (columns - 1))
            line[place] = "┬"
            begin = min(max(0, place - len(name) // 2), columns - len(name))
            text[begin : begin + len(name)] = name
    blank = " " * margin
    return Text(f"{blank}└{''.join(line)}\n{blank} {''.join(text).rstrip()}", style="dim")


def _scaled(values: Sequence[float], low: float, high: float, size: int) -> np.ndarray:
    place = (np.asarray(values, np.float64) - low) / ((high - low) or 1.0)
    return np.clip((place * (size - 1)).round(), 0, size - 1).astype(int)


def _joined(xs: np.ndarray, ys: np.ndarray) -> list[tuple[int, int]]:
    """Return every dot on the straight lines between points."""
    if len(xs) == 1:
        return [(int(xs[0]), int(ys[0]))]
    dots = []
    for i in range(len(xs) - 1):
        steps = int(max(abs(xs[i + 1] - xs[i]), abs(ys[i + 1] - ys[i]), 1))
        between = np.linspace([xs[i], ys[i]], [xs[i + 1], ys[i + 1]], steps + 1).round()
        dots += [(int(x), int(y)) for x, y in between]
    return dots
