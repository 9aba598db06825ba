"""`Sink`, the base class of logger back ends, and `BackgroundSink`, which calls one in a thread.

A record is a kind with its arguments:

============= ================================ =============================================
kind          arguments
============= ================================ =============================================
``scalars``   ``values, step``                 metric name to float
``hparams``   ``config``                       nested plain Python values
``text``      ``name, text, step``             Markdown if the sink renders it
``image``     ``name, pixels, step``           uint8 ``[height, width, channels]``
``video``     ``name, frames, step, fps``      uint8 ``[time, height, width, channels]``
``histogram`` ``name, values, step, bins``     finite float64 ``[n]``
============= ================================ =============================================

Images and videos have 1 or 3 channels; an ``fps`` of ``None`` is the default. Sinks share the
arguments, and so do not change them.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import math
import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from queue import Empty, Full, Queue
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np

from ..base.words import did_you_mean, printable
from ..errors import ConfigError, MissingPackageError

log = logging.getLogger(__name__)


class Sink(ABC):
    """Base class of logger back ends.

    A sink opens its destination at the first write, so that `load_state_dict` can restore a
    position before. After `close` the next write opens it again and continues.

    Subclasses implement ``write_scalars``, and a ``write_<kind>`` for each other kind of record
    that they support. A sink is used by one thread at a time.

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
        self._refused: set[str] = set()

    def write(self, kind: str, *args: Any) -> None:
        """Write one record; a kind that the sink does not support is reported once."""
        if method := getattr(self, f"write_{kind}", None):
            method(*args)
        elif kind not in self._refused:
            self._refused.add(kind)
            log.warning(
                "Logger %r cannot hold what log_%s gives it: left out of it.", self.name, kind
            )

    @abstractmethod
    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write the metric values of one step."""

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


def append(path: Path, data: bytes) -> None:
    """Append to a file, never through a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "ab") as file:
        file.write(data)


def cut(path: Path, size: int) -> None:
    """Shorten a file that is longer, never through a link."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size > size:
            os.ftruncate(fd, size)
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """Wait until what was appended is on the disk; a file that is missing needs no wait."""
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# -- `BackgroundSink`: a bounded queue and a writer thread in front of a sink.


class BackgroundSink(Sink):
    """Writes to `sink` in a thread, which starts at the first use.

    All calls of `sink` run in that thread. Its first exception is reported and disables it; loading
    a state enables it again. An unclosed sink is closed when the interpreter ends. Pickling
    flushes; a copy, and a forked child, start their own thread.

    A caller waits at most `patience` seconds for a sink that does not answer. One warning reports
    it; nothing waits for it until it has caught up. Meanwhile records are dropped if the queue is
    full, and a checkpoint stores no position.

    Args:
        sink: The sink.
        capacity: Records in a full queue; each 32 KiB of an image count as one.
        linger: Seconds from a record to the flush of the sink.
        patience: Seconds a caller waits for space, for an answer, and for each record when closing.
        limit: Maximum seconds of closing, in addition to `Sink.closing`.

    Attributes:
        failure: The exception that disabled the sink, or `None`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        capacity: int = 10_000,
        linger: float = 0.5,
        patience: float = 5.0,
        limit: float = 30.0,
    ) -> None:
        super().__init__()
        self.sink, self.name = sink, sink.name
        self.failure: BaseException | None = None
        self._capacity, self._linger = capacity, linger
        self._patience, self._limit = patience, limit
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._is_closed = False
        self._done = self._step = 0

    def write(self, kind: str, *args: Any) -> None:
        """Queue one record; waits only if the queue is full."""
        size = sum(value.nbytes for value in args if isinstance(value, np.ndarray))
        self._put(_Call("write", (kind, *args), size=1 + size // 2**15))

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Queue the metric values of one step."""
        self.write("scalars", values, step)

    def flush(self) -> None:
        """Wait until everything queued is written and flushed."""
        self._ask("flush")

    def close(self, status: str = "finished") -> None:
        """Write the queue, close the sink and end the thread; disable the sink on a timeout."""
        if self._is_closed or (self._thread is not None and self._pid != os.getpid()):
            return
        thread = self._start()
        self._is_closed = True
        patience = max(self._patience, self.sink.closing)
        until = monotonic() + self._bound(self._limit + self.sink.closing)
        self.sink.deadline = until - 0.25
        answer, done = Future[Any](), -1
        is_queued = self._put(_Call("close", (status,), answer), self._bound(patience))
        while is_queued and done != self._done and (left := until - monotonic()) > 0:
            done = self._done
            with suppress(NoAnswerError):
                answer.result(min(patience, left))
                break
        self._thread = None
        if answer.done():
            thread.join(1.0)
        else:
            self._is_late = True
            why = f"it was not closed in time; {self._queue.size} records or more were not written"
            self._disable(TimeoutError(f"{why}. {self.sink.hint}".rstrip()))
        atexit.unregister(self.close)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after everything queued is written; empty without an answer."""
        return self._ask("state_dict") or {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a saved position."""
        self._ask("load_state_dict", state_dict)

    def how_to_view(self) -> str:
        """Return a command or path that shows what was logged."""
        return self.sink.how_to_view()

    def _start(self) -> threading.Thread:
        """Start the thread; in a forked child, where the queue is the parent's, a new one."""
        if self._thread is not None and self._pid == os.getpid():
            return self._thread
        self._pid, self._is_closed = os.getpid(), False
        self._queue = _BoundedQueue(self._capacity)
        self._is_late = False  # from a timeout until it has caught up
        self._thread = threading.Thread(
            target=self._run, name=f"hooktrainer-{self.name}", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)
        return self._thread

    def _bound(self, seconds: float) -> float:
        return max(0.0, min(seconds, self.deadline - monotonic(), threading.TIMEOUT_MAX))

    def _put(self, call: _Call, wait: float | None = None) -> bool:
        """Queue a call; return whether there was space for it."""
        self._start()
        if wait is None:
            wait = 0.0 if self._is_late else self._bound(self._patience)
        try:
            self._queue.put(call, timeout=wait)
        except Full:
            self._report_late("takes nothing more")
            return False
        return True

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method in the writer and return its result, or `None` if it does not answer."""
        answer = Future[Any]()
        if not self._put(_Call(method, args, answer)) or not self.sink.is_awaited:
            return None
        try:
            return answer.result(0 if self._is_late else self._bound(self._patience))
        except NoAnswerError:
            self._report_late("does not answer")
            return None

    def _report_late(self, what: str) -> None:
        if not self._is_late:
            self._is_late = True
            log.warning(
                "Logger %r %s: training goes on without waiting for it, and what is logged from "
                "step %d on may be missing from it.",
                self.name,
                what,
                self._step,
            )

    def _run(self) -> None:
        """Make the calls in the queue, and flush ``linger`` seconds after a record."""
        queue, method, due = self._queue, "", math.inf
        while method != "close" and self._thread is threading.current_thread():
            wait = None if due == math.inf else max(0.0, due - monotonic())
            with suppress(Empty):
                method, args, answer, _ = queue.get(timeout=wait)
                if method == "load_state_dict":
                    self.failure = None
                elif method == "write":
                    due = min(due, monotonic() + self._linger)
                    self._step = args[2] if args[0] == "scalars" else self._step
                result = self._attempt(method, args, method not in ("write", "flush"))
                self._done += 1
                if answer is not None:
                    answer.set_result(result)
            if monotonic() >= due:
                self._attempt("flush")
                due = math.inf
            self._is_late = self._is_late and not queue.empty()

    def _attempt(self, method: str, args: Sequence[Any] = (), is_forced: bool = False) -> Any:
        if self.failure is None or is_forced:
            try:
                return getattr(self.sink, method)(*args)
            except BaseException as error:  # a dead writer would leave its callers waiting
                self._disable(error)
        return None

    def _disable(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            log.error(
                "Logger %r failed and is switched off; training goes on, but what is logged from "
                "step %d on may be missing from it. Reason: %s: %s",
                self.sink,
                self._step,
                type(error).__name__,
                error,
            )

    def __getstate__(self) -> dict[str, Any]:
        if self._thread is not None:
            self.flush()
        return self.__dict__ | {"_thread": None, "_queue": None, "failure": None}

    def __repr__(self) -> str:
        return repr(self.sink)


class _Call(NamedTuple):
    """A call of the sink; `answer`, if any, gets its result."""

    method: str
    args: tuple[Any, ...]
    answer: Future[Any] | None = None
    size: int = 1


class _BoundedQueue(Queue[_Call]):
    """A queue bounded by the sum of the sizes in it."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self.size = 0

    def _qsize(self) -> int:
        return self.size

    def _put(self, item: _Call) -> None:
        super()._put(item)
        self.size += item.size

    def _get(self) -> _Call:
        call = super()._get()
        self.size -= call.size
        return call


# -- Creating sinks by name.


DEFAULT_LOGGERS: Final = ("csv", "tensorboard")
"""Loggers of a run with a directory."""

_SINKS: Final[Mapping[str, str]] = {
    "csv": "csv:CSVSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "mlflow": "mlflow:MLflowSink",
    "wandb": "wandb:WandbSink",
}
"""Module and class of each sink, imported on demand."""


def check_kinds(kinds: Sequence[str]) -> None:
    """Check logger names before anything is created or imported.

    Raises:
        ConfigError: If a name is unknown or repeated.
        MissingPackageError: If the package of `mlflow` or `wandb` is not installed.
    """
    for number, kind in enumerate(kinds):
        if kind not in _SINKS:
            hint = did_you_mean(kind, _SINKS)
            raise ConfigError(f"unknown logger {kind!r}.{hint} There are: {', '.join(_SINKS)}.")
        if kind in kinds[:number]:
            raise ConfigError(f"logger {kind!r} is given twice")
        package = sink_class(kind).needs
        if package is not None and importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"logger {kind!r} needs a package that is not installed: "
                f"pip install 'hooktrainer[{kind}]'",
                name=package,
            )


def generate_exp_name(model_name: str, experiment_name: str) -> str:
    """Return a unique name: model, experiment, 8 random hex digits, date and time.

    >>> generate_exp_name("ppo", "cartpole")  # doctest: +SKIP
    'ppo_cartpole_1f0c9a2e_25_03_14-15_09_26'
    """
    now = datetime.now().strftime("%y_%m_%d-%H_%M_%S")
    return f"{model_name}_{experiment_name}_{uuid.uuid4().hex[:8]}_{now}"


def make_sinks(
    kinds: Sequence[str],
    directory: Path,
    *,
    experiment: str,
    store: Path,
    run_id: str | None,
    mlflow: Mapping[str, Any],
    wandb: Mapping[str, Any],
) -> dict[str, Sink]:
    """Create the sinks of a run; `csv` first, since MLflow and W&B send its files.

    Args:
        kinds: Names of the sinks.
        directory: The run's directory.
        experiment: Name of the experiment.
        store: Directory shared by the runs of a folder.
        run_id: The run's id.
        mlflow: Further arguments of `MLflowSink`.
        wandb: Further arguments of `WandbSink`.
    """
    own = {} if run_id is None else {"hooktrainer.run_id": run_id}
    name, experiment = printable(directory.absolute().name), printable(experiment)
    place: dict[str, Any] = {"directory": directory}
    named = place | {"run_name": name}
    arguments: dict[str, dict[str, Any]] = {
        "csv": {"path": directory / "metrics.csv"},
        "tensorboard": {"directory": directory / "tensorboard", "run_name": name},
        "mlflow": named | {"experiment": experiment, "store": store, **mlflow},
        "wandb": named | {"project": experiment, **wandb},
    }
    arguments["mlflow"]["tags"] = own | dict(mlflow.get("tags") or {})
    arguments["wandb"]["config"] = own | dict(wandb.get("config") or {})
    if "csv" in kinds or any(sink_class(kind).needs for kind in kinds):
        kinds = ["csv", *(kind for kind in kinds if kind != "csv")]
    return {kind: sink_class(kind)(**arguments.get(kind, place)) for kind in kinds}


def import_sinks(kinds: Sequence[str]) -> None:
    """Import the modules that sinks of these names need at the start of a run."""
    for kind in kinds:
        for module in sink_class(kind).imports:
            importlib.import_module(module)


def sink_class(kind: str) -> type[Any]:
    """Return the class of a sink."""
    found: type[Sink] = resolve_name(f"{__package__}.{_SINKS[kind]}")
    return found
