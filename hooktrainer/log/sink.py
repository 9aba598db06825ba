"""`Sink`, the base class of logger back ends, and the records they receive."""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)


class Sink(ABC):
    """Base class of logger back ends.

    A sink opens its destination at the first write, so that `load_state_dict` can restore a
    position before. After `close` the next write opens it again and continues.

    Subclasses implement `write_scalars` and the other records they support. Others are reported
    once and skipped. A sink is used by one thread at a time.

    Attributes:
        name: Name in messages.
        needs: The required package, which is also the name of the extra.
        imports: Modules that it imports when a run begins.
        closing: Seconds that its `close` may take.
        is_awaited: Whether a flush and a checkpoint wait for it.
        deadline: When, by `time.monotonic`, `close` is no longer waited for.
        hint: What to do about records that were not written in time.
    """

    name: str = "sink"
    needs: str | None = None
    imports: Sequence[str] = ()
    closing: float = 0.0
    is_awaited: bool = True
    deadline: float = math.inf
    hint: str = ""

    def __init__(self) -> None:
        self._refused: set[type] = set()

    def write(self, event: Event) -> None:
        """Write one record."""
        getattr(self, f"write_{type(event).__name__.lower()}")(event)

    @abstractmethod
    def write_scalars(self, event: Scalars) -> None:
        """Write the metric values of one step."""

    def write_hparams(self, event: HParams) -> None:
        """Write the configuration; writing the same one again changes nothing."""
        self._refuse(event)

    def write_text(self, event: Text) -> None:
        """Write a text."""
        self._refuse(event)

    def write_image(self, event: Image) -> None:
        """Write an image."""
        self._refuse(event)

    def write_video(self, event: Video) -> None:
        """Write a video."""
        self._refuse(event)

    def write_histogram(self, event: Histogram) -> None:
        """Write a histogram."""
        self._refuse(event)

    @abstractmethod
    def flush(self) -> None:
        """Pass everything written to the operating system or the server."""

    def close(self, status: str = "finished") -> None:
        """Flush, record how the run ended (`hooktrainer.base.endings`), and release resources."""
        self.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the destination, as plain Python values."""
        return {}

    def load_state_dict(  # noqa: B027  (some destinations have no position)
        self, state_dict: Mapping[str, Any]
    ) -> None:
        """Continue at a saved position; later records must not appear twice.

        The state is empty if the sink did not answer when it was saved.
        """

    def how_to_view(self) -> str:
        """Return a command or path that shows the records."""
        return ""

    def __repr__(self) -> str:
        return self.name

    def _refuse(self, event: Event) -> None:
        if type(event) not in self._refused:
            self._refused.add(type(event))
            log.warning(
                "Logger %r cannot hold what log_%s gives it: left out of it.",
                self.name,
                type(event).__name__.lower(),
            )


def append(path: Path, data: bytes) -> None:
    """Append to a file, never through a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "ab") as file:
        file.write(data)


def sync(path: Path) -> None:
    """Wait until what was appended is on the disk; a file that is missing needs no wait."""
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# -- What can be logged: small immutable records that travel from a `Logger` to its sinks.


class Scalars(NamedTuple):
    """Metric values of one step, shared by sinks and so not to be changed."""

    values: Mapping[str, float]
    step: int


class HParams(NamedTuple):
    """The configuration of a run as nested plain Python values."""

    config: dict[str, Any]
    step: int


class Text(NamedTuple):
    """A text, Markdown if the sink renders it."""

    name: str
    text: str
    step: int


class Image(NamedTuple):
    """An image, uint8 `[height, width, channels]` with 1 or 3 channels."""

    name: str
    pixels: NDArray[np.uint8]
    step: int


class Video(NamedTuple):
    """A video, uint8 `[time, height, width, channels]`; `fps` `None` for the default."""

    name: str
    frames: NDArray[np.uint8]
    step: int
    fps: float | None


class Histogram(NamedTuple):
    """Finite values, float64 `[n]`, to be counted in `bins` bins."""

    name: str
    values: NDArray[np.float64]
    step: int
    bins: int


Event: TypeAlias = Scalars | HParams | Text | Image | Video | Histogram
