"""`Sink`, the base class of logger back ends, `GuardedSink`, and the records they receive."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base.words import printable

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
        deadline: When, by `time.monotonic`, waiting for the sink ends; see `set_deadline`.
    """

    name: str = "sink"
    needs: str | None = None
    imports: Sequence[str] = ()
    closing: float = 0.0

    def __init__(self) -> None:
        self.deadline = math.inf
        self._refused: set[type] = set()

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> Sink:
        """Create the sink of a run, for `hooktrainer.get_logger`.

        Args:
            place: Where the run's logs are written.
            **kwargs: Further arguments from `get_logger`.
        """
        raise NotImplementedError(f"{cls.__name__} is not made by a name")

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

    def sync(self) -> None:
        """Make flushed data of a local file survive a power loss."""
        self.flush()

    @abstractmethod
    def close(self, status: str = "finished") -> None:
        """Flush, record how the run ended (`hooktrainer.base.endings`), and release resources."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position in the destination, as plain Python values."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position; later records must not appear twice."""

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the position after `step`, for a destination that does not answer.

        May be called in any thread, even during a write. Empty if unknown; the sink then continues.
        """
        return {}

    def set_deadline(self, deadline: float) -> None:
        """Set the deadline."""
        self.deadline = deadline

    def after_fork(self) -> None:  # noqa: B027  (most sinks have nothing to do)
        """Drop buffers and handles of the parent, in a forked child."""

    def how_to_view(self) -> str:
        """Return a command or path that shows the records."""
        return ""

    def _refuse(self, event: Event) -> None:
        if type(event) not in self._refused:
            self._refused.add(type(event))
            log.warning(
                "Logger %r cannot hold what log_%s gives it: left out of it.",
                self.name,
                type(event).__name__.lower(),
            )


class GuardedSink(Sink):
    """Disables a sink after its first exception, which is reported and stored in `failure`."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self.sink = sink
        self.name = sink.name
        self.closing = sink.closing
        self.failure: BaseException | None = None
        self._step = 0

    def write(self, event: Event) -> None:
        """Write one record, unless the sink has failed."""
        if self.failure is None:
            self._step = event.step
        self._attempt(self.sink.write, event)

    def write_scalars(self, event: Scalars) -> None:
        """Write the metric values of one step, unless the sink has failed."""
        self.write(event)

    def flush(self) -> None:
        """Flush, unless the sink has failed."""
        self._attempt(self.sink.flush)

    def sync(self) -> None:
        """Sync, unless the sink has failed."""
        self._attempt(self.sink.sync)

    def close(self, status: str = "finished") -> None:
        """Close the sink, even a disabled one."""
        self._attempt(self.sink.close, status, always=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last good write."""
        self.flush()
        return self._attempt(self.sink.state_dict, always=True) or {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position, and enable a failed sink again."""
        self.failure = None
        if state_dict:
            self._attempt(self.sink.load_state_dict, state_dict)

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the position after `step`, without calling the destination."""
        return self.sink.state_at(step)

    def set_deadline(self, deadline: float) -> None:
        """Set the deadline."""
        super().set_deadline(deadline)
        self.sink.set_deadline(deadline)

    def after_fork(self) -> None:
        """Drop what belongs to the parent process."""
        self.sink.after_fork()

    def how_to_view(self) -> str:
        """Return a command or path that shows the records."""
        return self.sink.how_to_view()

    def disable(self, error: BaseException) -> None:
        """Report the first `error` and disable the sink."""
        if self.failure is None:
            self.failure = error
            log.error(
                "Logger %r failed and is switched off; training goes on, but what is logged from "
                "step %d on may be missing from it. Reason: %s: %s",
                self.name,
                self._step,
                type(error).__name__,
                error,
            )

    def _attempt(self, method: Callable[..., Any], *args: Any, always: bool = False) -> Any:
        if always or self.failure is None:
            try:
                return method(*args)
            except Exception as error:
                self.disable(error)
        return None

    def __repr__(self) -> str:
        return repr(self.sink)


def set_aside(paths: list[Path]) -> None:
    """Move files of an earlier run to `previous_<n>/` in their directory."""
    if not paths:
        return
    parent = paths[0].parent
    number = 1
    while (folder := parent / f"previous_{number}").exists():
        number += 1
    folder.mkdir()
    for path in paths:
        path.rename(folder / path.name)
    log.warning("%s holds an earlier run's log: moved to %s.", parent, folder)


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


def payload_bytes(event: Event) -> int:
    """Return the bytes of a record's array."""
    return sum(value.nbytes for value in event if isinstance(value, np.ndarray))


# -- Where the logs of a run go, and what they are called there.


class LogPlace:
    """Where a run's logs are written and their names.

    Args:
        directory: The run's directory.
        experiment: Name of the experiment.
        store: Directory shared by the runs of a folder.
        run_id: The run's id; ``None`` before it begins.
    """

    def __init__(self, directory: Path, experiment: str, store: Path, run_id: str | None) -> None:
        self.directory = directory
        self.experiment = printable(experiment)
        self.run = printable(directory.absolute().name)
        self.store = store
        self.run_id = run_id
