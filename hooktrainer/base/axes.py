"""Axes of drawings in SVG with round numbers, and the chart of one curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26
_MOST_POINTS = 400
_CHART = 560, 190  # width and height of the chart of one curve; text is 11 units high


class Axes:
    """Coordinates in a drawing, and its axes.

    Args:
        size: Width and height of the drawing.
        xs: The least and the greatest ``x``.
        ys: The least and the greatest ``y``; the axis extends to round numbers.
        inset: Distance of the first and the last ``x`` from the edges.
    """

    def __init__(
        self, size: tuple[int, int], xs: tuple[float, float], ys: tuple[float, float], inset: int
    ) -> None:
        self.width, self.height = size
        self.inset = inset
        self.x_low, self.x_high = xs if xs[1] > xs[0] else (xs[0] - 1, xs[0] + 1)
        self.y_ticks, self.y_low, self.y_high = ticks(*ys, 6)

    def x(self, x: float) -> float:
        """Return the place of ``x`` from the left."""
        across = self.width - _LEFT - _RIGHT - 2 * self.inset
        share = (x - self.x_low) / (self.x_high - self.x_low)
        return round(_LEFT + self.inset + share * across, 1)

    def y(self, y: float) -> float:
        """Return the place of ``y`` from the top."""
        share = (self.y_high - y) / (self.y_high - self.y_low)
        return round(_TOP + share * (self.height - _TOP - _BOTTOM), 1)

    def points(self, xs: np.ndarray, ys: np.ndarray) -> str:
        """Return the points of a line, at most 400 of them."""
        chosen = np.unique(np.linspace(0, len(xs) - 1, min(len(xs), _MOST_POINTS)).round())
        return " ".join(f"{self.x(xs[int(i)])},{self.y(ys[int(i)])}" for i in chosen)

    def begin(self, x_ticks: Sequence[tuple[float, str]]) -> list[str]:
        """Return the opening tag of the SVG, the grid and the labels."""
        parts = [f'<svg viewBox="0 0 {self.width} {self.height}" role="img">']
        for value, name in self.y_ticks:
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{self.width - _RIGHT}" y1="{y}" y2="{y}"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{name}</text>'
            )
        for value, name in x_ticks:
            if self.x_low <= value <= self.x_high:
                at = f'x="{self.x(value)}" y="{self.height - 6}"'
                anchor = "end" if value == self.x_high else "middle"  # else it is cut off
                parts.append(f'<text {at} text-anchor="{anchor}">{escape(name)}</text>')
        return parts


def line_chart(points: Sequence[tuple[float, float]], title: str) -> str:
    """Draw one curve as a figure, in the CSS classes of `hooktrainer.base.notebook`.

    Args:
        points: At least one, ``(x, y)``, both finite.
        title: The caption, which the browser shows at the curve, too.
    """
    xs, ys = np.array(points if len(points) > 1 else [*points, *points], np.float64).T
    axes = Axes(_CHART, (xs[0], xs[-1]), (float(ys.min()), float(ys.max())), 0)
    parts = axes.begin(ticks(axes.x_low, axes.x_high, axes.width // 70)[0])
    name, line = escape(title), axes.points(xs, ys)
    parts.append(f'<polyline class="mean" points="{line}"><title>{name}</title></polyline>')
    caption = f"<figcaption>{name}</figcaption>"
    return f'<figure class="chart">{caption}{"".join(parts)}</svg></figure>'


# -- Round numbers along an axis.


def ticks(low: float, high: float, most: int) -> tuple[list[tuple[float, str]], float, float]:
    """Choose about ``most`` round ticks of an axis.

    Returns:
        Ticks as values and labels, from below ``low`` to above ``high``; the first; the last.
    """
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [(i * step, label(i * step, step)) for i in range(first, last + 1)]
    return marks, first * step, last * step


def label(value: float, step: float) -> str:
    """Format a tick label, ``step`` apart from the next, such as ``2.5k`` or ``0.01``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and (step >= size / 100):
            return f"{value / size:.10g}{unit}"
    if value == 0:
        return "0"
    if step < 1e-4:
        return f"{value:.3g}"
    decimals = next(n for n in range(7) if abs(round(step, n) - step) < 1e-6 * step)
    return f"{value:.{decimals}f}"
