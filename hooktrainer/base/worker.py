"""`Worker`: a process that runs a function, exchanges messages, and ends with its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from multiprocessing import reduction, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from time import monotonic
from typing import Any, Final, Literal

import cloudpickle

from ..errors import ConfigError, add_note, place_of
from .cores import unpinned
from .endings import ENDING_SIGNALS, TIMEOUT, end_with_parent

_GRACE = 3.0  # seconds a worker has to end by itself
_BEAT = 1.0  # seconds between two checks whether the other process lives
_RESULT: Final = b"r"  # the first byte of a message from a worker
_ERROR: Final = b"e"  # the first byte of one that is an exception

Start = Literal["forkserver", "fork", "spawn"]


class ChildError(RuntimeError):
    """A child process died, or does not answer."""


class ClosedError(EOFError):
    """The parent has closed the connection; the worker then ends silently."""


class _End:
    """One end of a connection.

    Attributes:
        connection: For `multiprocessing.connection.wait`.
        pid: Number of the process at the other end.
    """

    connection: Connection
    pid: int

    def give_file(self, descriptor: int) -> None:
        """Send an open file; the other end calls `take_file`."""
        reduction.send_handle(self.connection, descriptor, self.pid)

    def take_file(self) -> int:
        """Receive a file descriptor."""
        return reduction.recv_handle(self.connection)


class Channel(_End):
    """The worker's end of the connection."""

    pulse: Callable[[], Any] | None = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        parent = multiprocessing.parent_process()
        assert parent is not None
        self.pid = parent.pid or 0
        self._sending = threading.Lock()

    def receive(self) -> bytes:
        """Wait for the next message."""
        try:
            return self.connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise ClosedError from None

    def send(self, answer: bytes) -> None:
        """Send an answer."""
        with self._sending:
            self.connection.send_bytes(_RESULT + answer)

    def send_object(self, answer: Any) -> None:
        """Send an object as a pickled answer."""
        self.send(cloudpickle.dumps(answer))

    def send_error(self, error: BaseException) -> None:
        """Raise ``error`` in the parent, where it waits for an answer.

        An exception that is no `Exception` (such as SystemExit), or that does not pickle, is sent
        as a `ChildError`.
        """
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = f"{type(error).__name__}: {error}"
        if not isinstance(error, Exception):
            message += f", raised {place_of(error)}"
        raised: BaseException = ChildError(message)
        if isinstance(error, Exception):
            # Not every exception that can be pickled can be put together again.
            with suppress(Exception):
                pickle.loads(cloudpickle.dumps((error, text)))
                raised = error
        data = cloudpickle.dumps((raised, text))
        with self._sending:
            self.connection.send_bytes(_ERROR + data)


class Worker(_End):
    """A process that runs one function, which exchanges messages with this process.

    It ends when `close` is called, when this object is deleted, and when this process ends, even by
    SIGKILL. ``start`` is one of:

    - ``"forkserver"``: a part of this run. It ignores SIGINT, SIGTERM
      and SIGHUP, since this process decides when to stop. The script needs
      ``if __name__ == "__main__":``.
    - ``"fork"``, ``"spawn"``: a run of its own in its own session, with default signal handlers.
      Its standard output is discarded; its standard error is this process's. A forked one inherits
      imports, memory and random generators. It is forked from a new thread, so that it creates its
      own OpenMP pool.

    Args:
        name: Name in messages, such as ``"environment worker 1"``.
        target: Called in the worker with its `Channel` and ``args``. Unless forked, both are sent
            by `cloudpickle`, so that they may be lambdas or local functions.
        args: Further arguments of ``target``.
        start: How the process is started.
        timeout: Seconds to wait for an answer.

    Attributes:
        timeout: Seconds to wait for an answer; after a timeout the worker is unusable.
        unanswered: How many messages have no answer yet; the arguments are the first.

    Raises:
        ConfigError: If the function or an argument does not pickle.
        ChildError: If the process ends before it has received them.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., object],
        *args: Any,
        start: Start = "forkserver",
        timeout: float = TIMEOUT,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.unanswered = 0
        self._is_run = start != "forkserver"
        self._has_begun = False
        self._is_given_up = False
        context: Any = multiprocessing.get_context(start)
        payload = None if start == "fork" else _pickled(name, target, args)
        self.connection, theirs = context.Pipe()
        # A forked process inherits this end too, and closes it.
        forked = None if payload else (self.connection, target, args)
        parent = os.getpid() if self._is_run else None
        # Not daemonic: it may have children of its own, and is ended by `_end` all the same.
        process = context.Process(target=_work, args=(theirs, parent, forked), name=name)
        if start == "forkserver":
            # What the first worker needs is imported by the server, once for all of them.
            context.set_forkserver_preload([target.__module__])
            with unpinned():
                # The server and the user's own processes from it keep this mask: they take SIGTERM.
                _start(process, [signal.SIGINT])
        elif start == "spawn":
            _start(process)
        else:
            thread = threading.Thread(target=_start, args=(process,))
            thread.start()
            thread.join()
        theirs.close()  # so that the end of the worker is the end of the connection
        self._process: BaseProcess = process
        self.pid = process.pid
        self._poll = select.poll()
        self._poll.register(self.connection.fileno(), select.POLLIN)
        # By multiprocessing, which waits for its processes when it exits; all connections first.
        self._closing = Finalize(self, self.connection.close, exitpriority=11)
        self._end = Finalize(self, _end, (process, self.connection, _GRACE), exitpriority=10)
        if payload:
            self.send(payload)

    def send(self, message: bytes) -> None:
        """Send a message."""
        self.unanswered += 1
        try:
            self.connection.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            # It may have sent the reason before it died.
            while True:
                self.receive()

    def send_object(self, message: Any) -> None:
        """Send an object, pickled, unless the process has ended."""
        with suppress(OSError):
            self.connection.send_bytes(cloudpickle.dumps(message))

    def receive(self) -> bytes:
        """Wait for the next answer.

        Raises:
            ChildError: If the process died, or a timeout occurred.
            Exception: From the worker, with its traceback as the cause.
        """
        self.unanswered -= 1
        if self._is_given_up or not self._has_answer():
            self._is_given_up = True  # a late answer would be taken for the next one
            raise ChildError(
                f"{self.name} (process {self.pid}) has not answered for {self.timeout:g} seconds. "
                "If its work takes longer, raise the timeout; else look for what it waits for."
            )
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):  # the latter if it died in the midst of a message
            raise ChildError(self._death_message()) from None
        self._has_begun = True
        if message[:1] == _ERROR:
            error, text = pickle.loads(message[1:])
            add_note(error, f"raised in {self.name} (process {self.pid})")
            raise error from RemoteTraceback(text)
        return message[1:]

    def receive_object(self) -> Any:
        """Receive and unpickle an answer."""
        return pickle.loads(self.receive())

    def _has_answer(self) -> bool:
        # In slices, so that a run that was stopped and continued, by Ctrl-Z or a scheduler that
        # suspends jobs, has lost one slice at most.
        left = self.timeout
        while left > 0:
            if self._poll.poll(min(left, _BEAT) * 1000):
                return True
            left -= _BEAT
        return False

    def _death_message(self) -> str:
        self._process.join(_GRACE)
        code = self._process.exitcode
        if self._is_run:
            return _how_it_ended(code)
        if code == 1 and not self._has_begun:
            return (
                f"{self.name} (process {self.pid}) ended before it began its work; see above. The "
                'script has to be a file whose own work is below if __name__ == "__main__":'
            )
        how = _how_it_ended(code)
        return f"{self.name} (process {self.pid}) {how}. Resume the run with --resume latest."

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._process.terminate()

    def close(self, grace: float = _GRACE) -> None:
        """Close the connection, and kill the process if it runs on after ``grace`` seconds."""
        if self._end.still_active():
            self._end.cancel()
            _end(self._process, self.connection, grace)


class WorkerPool(list[Worker]):
    """Workers that run at the same time, each with any number of messages without an answer.

    Every message has one answer, and a worker's answers come in the order of its messages.
    """

    def ask_all(self, message: Callable[[int], bytes]) -> list[Any]:
        """Send each worker a message and return the unpickled answers."""
        for place, worker in enumerate(self):
            worker.send(message(place))
        return [worker.receive_object() for worker in self]

    def settle(self) -> None:
        """Receive and drop the answers that are due after a failure."""
        for worker in self:
            while worker.unanswered:
                with suppress(Exception):
                    worker.receive()

    def close(self) -> None:
        """End the processes within 3 s in total; a second call does nothing."""
        living = [worker for worker in self if worker._end.still_active()]
        for worker in living:
            worker.connection.close()
        deadline = monotonic() + _GRACE
        for worker in living:
            worker.close(max(0.0, deadline - monotonic()))


def native_threads() -> int:
    """Return the number of threads of this process, including those of libraries; 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL; memory may have run out: see the system's log"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}; PYTHONFAULTHANDLER=1 shows where"
    return f"ended with exit code {code}"


def _end(process: BaseProcess, connection: Connection, grace: float) -> None:
    """End a worker by closing its connection, or else kill it."""
    connection.close()
    process.join(grace)
    if process.exitcode is None:
        process.kill()
        process.join()
    process.close()


def _pickled(name: str, target: Callable[..., object], args: tuple[Any, ...]) -> bytes:
    try:
        return cloudpickle.dumps((target, args))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be started, since what it works on cannot be sent to another process: "
            f"{error}. Let a function that makes environments also make locks and open files."
        ) from error


def _start(process: BaseProcess, blocked: Collection[int] = ENDING_SIGNALS) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # else a forked worker writes out what is buffered once more
            stream.flush()
    resource_tracker.ensure_running()  # here, since it unblocks signals
    # Until the process has its own handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads, of which those here hold no lock that a worker uses.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, parent: int | None, forked: Any) -> None:
    """Run the target in the worker process."""
    is_run = parent is not None
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL if is_run else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    if is_run:
        with suppress(OSError):
            os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        sys.stdout = open(nowhere, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    channel = Channel(connection)
    end_with_parent(partial(_beat, channel, parent))
    code = 0
    try:
        if forked:
            theirs, target, args = forked
            theirs.close()
        else:
            target, args = pickle.loads(channel.receive())
        target(channel, *args)
    except ClosedError:
        pass
    except BaseException as error:
        code = 1
        with suppress(OSError):
            channel.send_error(error)
    if is_run:
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
        os._exit(code)  # what Python tidies up at its end takes as long as some runs


def _beat(channel: Channel, parent: int | None) -> bool:
    """Wait a second, send the pulse, and return whether the parent lives."""
    process = multiprocessing.parent_process()
    assert process is not None
    process.join(_BEAT)
    if channel.pulse is not None:
        with suppress(OSError):
            channel.send_object(channel.pulse())
    # Other forked processes may hold the pipe open by which the end of the parent is noticed.
    return process.is_alive() and (parent is None or os.getppid() == parent)
