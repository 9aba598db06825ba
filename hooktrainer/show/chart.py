"""Charts: metrics of groups of runs and scores over a value as SVG, a curve as a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..base.axes import Axes, ticks
from .curves import Band, Curve

_NARROW = (360, 230)
_MARK = 5  # radius
COLORS = 10
"""Number of colours; the page's style has a class for each, ``c0`` and so on."""
MOST_SHADED = 4
"""The most groups of a chart that also shows spreads and single runs."""


def line_class(number: int) -> str:
    """Return the CSS class of a group's line: ten colours, then dashed, then dotted."""
    return f"c{number % COLORS} d{number // COLORS % 3}"


def key(number: int, label: str) -> str:
    """Return a legend entry: a group's line and name."""
    return f'<span class="key {line_class(number)}">{escape(label)}</span>'


@dataclass(frozen=True)
class Marker:
    """A point in a chart with a tooltip, which links to what it represents."""

    frames: float
    value: float
    title: str
    link: str


def figure(
    groups: Sequence[tuple[str, Sequence[tuple[str, Curve]]]],
    bands: Sequence[Band],
    caption: str,
    marks: Sequence[Marker] = (),
    *,
    wide: tuple[int, int] = (760, 300),
) -> str:
    """Make a figure: the legend, the `chart` in two sizes, and a caption in HTML.

    The page's style shows the size that fits the screen; ``wide`` is the larger one.
    """
    keys = "".join(key(number, label) for number, (label, _) in enumerate(groups))
    legend = f'<div class="legend">{keys}</div>' if len(groups) > 1 else ""
    drawn = "".join(
        f'<div class="{name}">{chart(groups, bands, marks, width=width, height=height)}</div>'
        for name, (width, height) in (("wide", wide), ("narrow", _NARROW))
    )
    return f"<figure>{legend}{drawn}<figcaption>{caption}</figcaption></figure>"


def chart(
    groups: Sequence[tuple[str, Sequence[tuple[str, Curve]]]],
    bands: Sequence[Band],
    marks: Sequence[Marker] = (),
    *,
    width: int = 760,
    height: int = 300,
) -> str:
    """Draw the mean and the spread of groups of curves, and the curves as thin lines.

    A group is its label, and the name and curve of each of its runs, if they are drawn. Marks are
    above them. Text is 11 units high.
    """
    few = len(groups) <= MOST_SHADED
    curves = [curve for _, members in groups for _, curve in members if few]
    shown = [curve.values for curve in curves] + [band.middle for band in bands]
    shown += [edge for band in bands for edge in (band.low, band.high) if few]
    shown.append(np.array([mark.value for mark in marks]))
    ends = [float(end) for curve in curves for end in (curve.frames[0], curve.frames[-1])]
    ends += [float(end) for band in bands if len(band.frames) for end in band.frames[[0, -1]]]
    ends += [mark.frames for mark in marks]
    values = np.concatenate([edge for edge in shown if len(edge)])
    axes = Axes(
        (width, height),
        (min(ends), max(ends)),
        (float(values.min()), float(values.max())),
        _MARK + 3 if marks else 0,  # keeps the first mark off the axis labels
    )
    parts = axes.begin(ticks(axes.x_low, axes.x_high, width // 70)[0])
    for number, ((_, members), band) in enumerate(zip(groups, bands, strict=True)):
        color = line_class(number)
        if few and band.count > 1 and len(band.frames) > 1:
            upper = axes.points(band.frames, band.high)
            lower = axes.points(band.frames[::-1], band.low[::-1])
            parts.append(f'<polygon class="band {color}" points="{upper} {lower}"/>')
        for name, curve in members if few and band.count > 1 else ():
            title = f"<title>{escape(name)}</title>"
            drawn = axes.points(curve.frames, curve.values)
            parts.append(f'<polyline class="run {color}" points="{drawn}">{title}</polyline>')
    for number, ((label, _), band) in enumerate(zip(groups, bands, strict=True)):
        title, color = f"<title>{escape(label)}</title>", line_class(number)
        if len(band.frames) > 1:
            drawn = axes.points(band.frames, band.middle)
            parts.append(f'<polyline class="mean {color}" points="{drawn}">{title}</polyline>')
        elif len(band.frames):
            place = f'cx="{axes.x(band.frames[0])}" cy="{axes.y(band.middle[0])}"'
            parts.append(f'<circle class="point {color}" {place} r="4">{title}</circle>')
    for mark in marks:
        place = f'cx="{axes.x(mark.frames)}" cy="{axes.y(mark.value)}"'
        parts.append(
            f'<a href="{escape(mark.link)}"><title>{escape(mark.title)}</title>'
            f'<circle class="mark" {place} r="{_MARK}"/></a>'
        )
    return "".join([*parts, "</svg>"])


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(
    values: Sequence[float] | np.ndarray, width: int = 24, scale: tuple[float, float] | None = None
) -> str:
    """Return the finite values of a curve as a line of blocks, each the mean of its part.

    ``scale`` has the values of the lowest and the highest block, by default those of the curve.
    """
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    parts = (
        [p.mean() for p in np.array_split(finite, min(width, len(finite)))] if finite.size else []
    )
    low, high = scale or (min(parts, default=0.0), max(parts, default=0.0))
    return "".join(_BLOCKS[round((part - low) / ((high - low) or 1.0) * 7)] for part in parts)
