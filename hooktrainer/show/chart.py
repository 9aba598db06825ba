"""A chart of one metric of several groups of runs, as SVG inside HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from .axis import ticks
from .curves import Band, Curve

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26
_NARROW = (360, 230)
_MARK = 5  # radius
_MOST_POINTS = 400
COLORS = 8
"""Colours there are; the page's style gives each a class, ``c0`` and so on."""


@dataclass(frozen=True)
class Marker:
    """A point of its own in a chart, which leads to what it stands for.

    Attributes:
        frames: Where it is.
        value: How high.
        title: Shown while the pointer is on it.
        link: Where a click leads.
    """

    frames: float
    value: float
    title: str
    link: str


def chart_for_any_screen(
    groups: Sequence[tuple[str, Sequence[tuple[str, Curve]]]],
    bands: Sequence[Band],
    marks: Sequence[Marker] = (),
    *,
    wide: tuple[int, int] = (760, 300),
) -> str:
    """Draw a chart in two sizes, of which the page's style shows the one that can be read.

    Args:
        groups: As for `chart`.
        bands: Likewise.
        marks: Likewise.
        wide: Width and height of the larger one.
    """
    drawn = (("wide", *wide), ("narrow", *_NARROW))
    return "".join(
        f'<div class="{name}">{chart(groups, bands, marks, width=width, height=height)}</div>'
        for name, width, height in drawn
    )


def chart(
    groups: Sequence[tuple[str, Sequence[tuple[str, Curve]]]],
    bands: Sequence[Band],
    marks: Sequence[Marker] = (),
    *,
    width: int = 760,
    height: int = 300,
) -> str:
    """Draw the mean and the spread of groups of curves, and the curves themselves, thinly.

    Args:
        groups: The label of each group, and the name and the curve of each of its runs, of at
            least one point; or none, where there is only the mean.
        bands: The mean and spread of each group.
        marks: Points above them.
        width: Of the drawing, in units of which its text is 11 high.
        height: Of the drawing.
    """
    curves = [curve for _, members in groups for _, curve in members]
    shown = [curve.values for curve in curves]
    shown += [edge for band in bands for edge in (band.low, band.high)]
    shown.append(np.array([mark.value for mark in marks]))
    ends = [float(end) for curve in curves for end in (curve.frames[0], curve.frames[-1])]
    ends += [float(end) for band in bands if len(band.frames) for end in band.frames[[0, -1]]]
    ends += [mark.frames for mark in marks]
    x_low, x_high = min(ends), max(ends)
    values = np.concatenate([edge for edge in shown if len(edge)])
    y_ticks, y_low, y_high = ticks(float(values.min()), float(values.max()), 6)
    x_low, x_high = (x_low, x_high) if x_high > x_low else (x_low - 1, x_high + 1)

    inset = _MARK + 3 if marks else 0  # or the first would lie on the numbers of the axis

    def x_of(x: float) -> float:
        across = width - _LEFT - _RIGHT - 2 * inset
        return _LEFT + inset + (x - x_low) / (x_high - x_low) * across

    def y_of(y: float) -> float:
        return _TOP + (y_high - y) / (y_high - y_low) * (height - _TOP - _BOTTOM)

    def points(xs: np.ndarray, ys: np.ndarray) -> str:
        chosen = np.unique(np.linspace(0, len(xs) - 1, min(len(xs), _MOST_POINTS)).round())
        return " ".join(f"{x_of(xs[int(i)]):.1f},{y_of(ys[int(i)]):.1f}" for i in chosen)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for value, name in y_ticks:
        y = y_of(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{name}</text>')
    for value, name in ticks(x_low, x_high, width // 70)[0]:
        if x_low <= value <= x_high:
            parts.append(
                f'<text x="{x_of(value):.1f}" y="{height - 6}" text-anchor="middle">{name}</text>'
            )
    for number, ((_, members), band) in enumerate(zip(groups, bands, strict=True)):
        color = f"c{number % COLORS}"
        if band.count > 1 and len(band.frames) > 1:
            upper = points(band.frames, band.high)
            lower = points(band.frames[::-1], band.low[::-1])
            parts.append(f'<polygon class="band {color}" points="{upper} {lower}"/>')
        for name, curve in members if band.count > 1 else ():
            title = f"<title>{escape(name)}</title>"
            drawn = points(curve.frames, curve.values)
            parts.append(f'<polyline class="run {color}" points="{drawn}">{title}</polyline>')
    for number, ((label, _), band) in enumerate(zip(groups, bands, strict=True)):
        title, color = f"<title>{escape(label)}</title>", f"c{number % COLORS}"
        if len(band.frames) > 1:
            drawn = points(band.frames, band.middle)
            parts.append(f'<polyline class="mean {color}" points="{drawn}">{title}</polyline>')
        elif len(band.frames):
            place = f'cx="{x_of(band.frames[0]):.1f}" cy="{y_of(band.middle[0]):.1f}"'
            parts.append(f'<circle class="point {color}" {place} r="4">{title}</circle>')
    for mark in marks:
        place = f'cx="{x_of(mark.frames):.1f}" cy="{y_of(mark.value):.1f}"'
        parts.append(
            f'<a href="{escape(mark.link)}"><title>{escape(mark.title)}</title>'
            f'<circle class="mark" {place} r="{_MARK}"/></a>'
        )
    return "".join([*parts, "</svg>"])
