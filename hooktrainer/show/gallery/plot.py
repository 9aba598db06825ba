"""The curves of an episode as one picture, for where there is no SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..html import LIGHT
from .picture import Picture
from .recording import Frame

_WIDTH, _HEIGHT, _LEFT, _GAP = 360, 110, 52, 24
_INK, _LINE, _PAPER = "#5d6673", "#d9dee5", "#ffffff"


def plot(picture: Picture) -> Frame:
    """Draw what the policy saw and what it did, one above the other.

    Args:
        picture: One without a film.

    Returns:
        uint8 ``[height, width, 3]``.
    """
    from PIL import Image, ImageDraw

    panels = [("observation", picture.observations), ("action", picture.actions)]
    image = Image.new("RGB", (_WIDTH, len(panels) * (_HEIGHT + _GAP) + 8), _PAPER)
    draw = ImageDraw.Draw(image)
    for number, (name, lines) in enumerate(panels):
        _panel(draw, number * (_HEIGHT + _GAP) + _GAP, name, picture.steps, lines)
    return np.asarray(image)


def _panel(
    draw: Any, top: int, name: str, steps: Sequence[int], lines: Sequence[Sequence[float]]
) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(11)
    values = np.array(lines, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    spread = (high - low) or 1.0
    draw.text((_LEFT, top - 4), name, fill=_INK, font=font, anchor="ls")
    for y, value in ((top, high), (top + _HEIGHT, low)):
        draw.line((_LEFT, y, _WIDTH - 8, y), fill=_LINE)
        draw.text((_LEFT - 6, y), f"{value:.3g}", fill=_INK, font=font, anchor="rm")
    across = (_WIDTH - 8 - _LEFT) / max(1, steps[-1])
    for line, color in zip(values, LIGHT, strict=False):
        points = [
            (_LEFT + step * across, top + _HEIGHT * (high - value) / spread)
            for step, value in zip(steps, line, strict=True)
            if np.isfinite(value)
        ]
        draw.line(points, fill=color, width=2, joint="curve")
