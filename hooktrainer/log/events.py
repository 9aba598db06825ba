"""What can be logged: small immutable records that travel from a `Logger` to its sinks.

A record is complete when it is made (numbers are Python floats, pictures are private copies), so a
sink may write it later and on another thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Scalars(NamedTuple):
    """Metric values of one step. Several sinks share one record: nobody may change `values`."""

    values: Mapping[str, float]
    step: int


class HParams(NamedTuple):
    """The configuration of a run: nested dicts and lists of plain Python values."""

    config: dict[str, Any]
    step: int


class Text(NamedTuple):
    """A piece of text, Markdown where the sink renders it."""

    name: str
    text: str
    step: int


class Image(NamedTuple):
    """One picture, uint8 `[height, width, channels]` with 1 or 3 channels."""

    name: str
    pixels: NDArray[np.uint8]
    step: int


class Video(NamedTuple):
    """A film, uint8 `[time, height, width, channels]`; `fps` is `None` for the sink's default."""

    name: str
    frames: NDArray[np.uint8]
    step: int
    fps: float | None


class Histogram(NamedTuple):
    """A sample of finite values, float64 `[n]`, to be counted in `bins` bins."""

    name: str
    values: NDArray[np.float64]
    step: int
    bins: int


Event: TypeAlias = Scalars | HParams | Text | Image | Video | Histogram


def payload_bytes(event: Event) -> int:
    """Size in bytes of the arrays that `event` keeps alive."""
    if isinstance(event, Video):
        return event.frames.nbytes
    if isinstance(event, Image):
        return event.pixels.nbytes
    if isinstance(event, Histogram):
        return event.values.nbytes
    return 0
