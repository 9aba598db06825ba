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

import concurrent.futures.thread  # noqa: F401 - not importable when a sink first opens at exit
import importlib
import importlib.util
import logging
import math
import os
import sys
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
from typing import IO, Any, Final
from weakref import WeakSet

from ..base.checks import named
from ..base.words import printable
from ..errors import MissingPackageError

log = logging.getLogger(__name__)


class Sink(ABC):
    """Base class of logger back ends.

    A sink opens its destination at the first write, so that `load_state_dict` can restore a
    position before. After `close` the next write opens it again and continues.

    Subclasses implement ``write_scalars`` and a ``write_<kind>`` for each other kind of record that
    they support, or `write`. A sink is used by one thread at a time.

    Attributes:
        name: Name in messages.
        needs: The required package, which is also the name of the extra.
        imports: Modules that it imports when a run begins.
        closing: Seconds that its `close` may take.
        is_awaited: Whether a flush and a checkpoint wait for it.
        hint: What to do about records that were not written in time.
    """

    name: str = "sink"
    needs: str | None = None
    imports: Sequence[str] = ()
    closing: float = 0.0
    is_awaited: bool = True
    hint: str = ""
    _refused: frozenset[str] = frozenset()

    def write(self, kind: str, *args: Any) -> None:
        """Write one record; a kind that the sink does not support is reported once."""
        if method := getattr(self, f"write_{kind}", None):
            method(*args)
        elif kind not in self._refused:
            self._refused |= {kind}
            log.warning(
                "Logger %r cannot hold what log_%s gives it: left out of it.", self.name, kind
            )

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

        If the sink did not answer when it was saved, the state is ``{"late": step}``, with the last
        step that was logged before.
        """

    def how_to_view(self) -> str:
        """Return a command or path that shows the records."""
        return ""

    def __repr__(self) -> str:
        return self.name


def open_log(path: Path) -> IO[bytes]:
    """Open a file to append to, never through a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o644), "ab")


# -- `BackgroundSink`: a bounded queue and a writer thread in front of a sink.

_MEMORY: Final = 1 << 28  # bytes of pictures that wait to be written


class BackgroundSink(Sink):
    """Writes to `sink` in a thread, which starts at the first use.

    All calls of `sink` run in that thread. Its first exception is reported and disables it; loading
    a state enables it again. An unclosed sink is closed when the interpreter, or a process of
    `multiprocessing`, ends. Pickling flushes; a copy, and a forked child, start their own thread.

    A caller waits at most `patience` seconds for a sink that does not answer. One warning reports
    it; nothing waits for it until it has caught up. Meanwhile records are dropped if the queue is
    full, and a checkpoint has only the last step as the position.

    Args:
        sink: The sink.
        capacity: Records in a full queue. Beyond 256 MiB of images and videos it is full as well.
        linger: Seconds from a record to the flush of the sink.
        patience: Seconds a caller waits for space or for an answer.
        limit: Maximum seconds of closing, in addition to `Sink.closing`.

    Attributes:
        failure: The exception that disabled the sink, or `None`.
        deadline: When, by `time.monotonic`, nothing is waited for any more.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        capacity: int = 10_000,
        linger: float = 0.5,
        patience: float = 5.0,
        limit: float = 15.0,
    ) -> None:
        self.sink, self.name = sink, sink.name
        self.failure: BaseException | None = None
        self.deadline = math.inf
        self._capacity, self._linger = capacity, linger
        self._patience, self._limit = patience, limit
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._late: Mapping[str, Any] = {"late": 0}  # the state of a sink that does not answer
        self._step = 0  # the last in the sink

    def write(self, kind: str, *args: Any) -> None:
        """Queue one record; waits only if the queue is full."""
        if kind == "scalars":
            self._late = {"late": args[1]}
        self._call("write", kind, *args)

    def flush(self) -> None:
        """Wait until everything queued is written and flushed."""
        self._call("flush", waits=True)

    def close(self, status: str = "finished") -> None:
        """Write the queue, close the sink and end the thread; disable the sink on a timeout."""
        if self._is_closed or (self._thread is not None and not self._thread.is_alive()):
            return  # the thread of a forked child's parent is not alive
        until = monotonic() + self._limit + self.sink.closing
        self._call("close", status, patience=until - monotonic())
        thread, self._is_closed = self._thread, True
        assert thread is not None
        thread.join(max(0.0, min(until, self.deadline) - monotonic()))
        self._thread = None
        if thread.is_alive():
            why = f"it was not closed in time; {self._queue.qsize()} records or more were not"
            self._disable(TimeoutError(f"{why} written. {self.sink.hint}".rstrip()))
        _open.discard(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after everything queued is written.

        Without an answer it is the last step, or what was loaded if nothing was logged since.
        """
        state: dict[str, Any] | None = self._call("state_dict", waits=True)
        return dict(self._late) if state is None else state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._late = state_dict
        self._call("load_state_dict", state_dict, waits=True)

    def how_to_view(self) -> str:
        return self.sink.how_to_view()

    def _call(
        self, method: str, *args: Any, waits: bool = False, patience: float | None = None
    ) -> Any:
        """Queue a call; return its result if it is waited for and comes in time, else `None`."""
        if self._thread is None or not self._thread.is_alive():
            self._is_closed = self._is_late = False  # late: from a timeout until it has caught up
            self._queue = Queue[tuple[str, tuple[Any, ...], Future[Any]]](self._capacity)
            self._pictures: list[tuple[int, Future[Any]]] = []  # their bytes
            self._thread = threading.Thread(
                target=self._run, name=f"hooktrainer-{self.name}", daemon=True
            )
            self._thread.start()
            _open.add(self)
        if patience is None:
            patience = 0.0 if self._is_late else self._patience
        patience = max(0.0, min(patience, self.deadline - monotonic()))
        answer = Future[Any]()
        size = args[2].nbytes if method == "write" and args[0] in ("image", "video") else 0
        try:
            while size and self._pictures and sum(n for n, _ in self._pictures) + size > _MEMORY:
                self._pictures[0][1].result(patience)
                self._pictures.pop(0)
            self._queue.put((method, args, answer), timeout=patience)
            if size:
                self._pictures = [one for one in self._pictures if not one[1].done()]
                self._pictures.append((size, answer))
            return answer.result(patience) if waits and self.sink.is_awaited else None
        except (Full, NoAnswerError):
            if not self._is_late:
                self._is_late = True
                log.warning(
                    "Logger %r does not keep up: training does not wait for it, and records from "
                    "step %d on may be missing.",
                    self.name,
                    self._step,
                )
            return None

    def _run(self) -> None:
        """Make the calls in the queue, and flush ``linger`` seconds after a record."""
        queue, method, due = self._queue, "", math.inf
        while method != "close" and self._thread is threading.current_thread():
            wait = None if due == math.inf else max(0.0, due - monotonic())
            with suppress(Empty):
                method, args, answer = queue.get(timeout=wait)
                if method == "load_state_dict":
                    self.failure = None
                elif method == "write":
                    due = min(due, monotonic() + self._linger)
                    self._step = args[2] if args[0] == "scalars" else self._step
                answer.set_result(self._attempt(method, *args))
            if monotonic() >= due:
                self._attempt("flush")
                due = math.inf
            self._is_late = self._is_late and not queue.empty()

    def _attempt(self, method: str, *args: Any) -> Any:
        if self.failure is None or method not in ("write", "flush"):
            try:
                return getattr(self.sink, method)(*args)
            except BaseException as error:  # a dead writer would leave its callers waiting
                self._disable(error)
        return None

    def _disable(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            log.error(
                "Logger %r failed and is switched off; training continues, but what is logged from "
                "step %d on may be missing from it. Reason: %s: %s",
                self.sink,
                self._step,
                type(error).__name__,
                error,
            )

    def __getstate__(self) -> dict[str, Any]:
        if self._thread is not None:
            self.flush()
        return self.__dict__ | {"_thread": None, "_queue": None, "_pictures": [], "failure": None}

    def __repr__(self) -> str:
        return repr(self.sink)


_open: WeakSet[BackgroundSink] = WeakSet()  # with a thread, which keeps them alive


def _close_all() -> None:
    """Close the unclosed sinks at the end of the program, servers last; see `Logger.close`."""
    status = "finished" if getattr(sys, "last_value", None) is None else "failed"
    for sink in sorted(_open, key=lambda one: one.sink.closing):
        sink.close(status)


# Not by atexit: processes of multiprocessing have none, and no thread can be started there.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


# -- Creating sinks by name.


DEFAULT_LOGGERS: Final = ("csv", "tensorboard")
"""Loggers of a run with a directory."""

_SINKS: Final[Mapping[str, str]] = {
    "csv": "csv:CSVSink",
    "tensorboard": "tensorboard:TensorBoardSink",
    "mlflow": "mlflow:MLflowSink",
    "wandb": "wandb:WandbSink",
    "prometheus": "prometheus:PrometheusSink",
}
"""Module and class of each sink, imported on demand."""


def check_kinds(kinds: Sequence[str]) -> None:
    """Check logger names before anything is created or imported.

    Raises:
        ConfigError: If a name is unknown.
        MissingPackageError: If the package of `mlflow` or `wandb` is not installed.
    """
    for kind in kinds:
        named("logger", kind, _SINKS)
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
    named: dict[str, Any] = {"directory": directory, "run_name": name}
    tags, config = own | dict(mlflow.get("tags") or {}), own | dict(wandb.get("config") or {})
    labels = {"run": name, "run_id": run_id or ""}
    arguments: dict[str, dict[str, Any]] = {
        "csv": {"path": directory / "metrics.csv"},
        "tensorboard": {"directory": directory / "tensorboard", "run_name": name},
        "mlflow": named | {"experiment": experiment, "store": store, **mlflow, "tags": tags},
        "wandb": named | {"project": experiment, **wandb, "config": config},
        "prometheus": {"directory": directory, "labels": labels},
    }
    if "csv" in kinds or any(sink_class(kind).needs for kind in kinds):
        kinds = ["csv", *(kind for kind in kinds if kind != "csv")]
    other = {"directory": directory}  # the arguments of any further sink
    return {kind: sink_class(kind)(**arguments.get(kind, other)) for kind in kinds}


def import_sinks(kinds: Sequence[str]) -> None:
    """Import the modules that sinks of these names need at the start of a run."""
    for kind in kinds:
        for module in sink_class(kind).imports:
            importlib.import_module(module)


def sink_class(kind: str) -> type[Any]:
    """Return the class of a sink."""
    found: type[Sink] = resolve_name(f"{__package__}.{_SINKS[kind]}")
    return found
