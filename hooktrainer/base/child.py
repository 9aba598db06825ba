"""`Child`: a process that works for this one, reports its errors here, and never outlives it."""

from __future__ import annotations

import multiprocessing
import pickle
import select
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

import cloudpickle

from ..errors import ConfigError, add_note
from .channel import ERROR, ChildError, RemoteError, reduction, work
from .cores import unpinned
from .worker import how_it_ended

_GRACE = 3.0  # seconds a child has to end by itself
_SLICE = 1.0  # seconds


class Child:
    """A process that runs one function, which takes messages and answers them.

    It is started by a server process (``forkserver``, else ``spawn``), never by ``fork``, which is
    not safe beside threads. So a script that makes one needs ``if __name__ == "__main__":``.

    The child ignores SIGINT, SIGTERM and SIGHUP, which a terminal or a scheduler sends to all
    processes of a run: this process decides when to stop. It ends when `close` is called, when this
    object is gone, and when this process ends, even by SIGKILL.

    Args:
        name: For messages, such as ``"environment worker 1"``.
        target: Called in the child with its `Channel` and ``args``; returns when told to by a
            message. May be a lambda or a local function, as may be the arguments: `cloudpickle`
            takes them across.
        args: What ``target`` takes beside the channel.
        timeout: Seconds to wait for an answer.

    Attributes:
        pid: Number of the process.
        timeout: Seconds to wait for an answer; one that did not come in time ends the use of it.

    Raises:
        ConfigError: If the arguments cannot be sent to another process.
        ChildError: If the process ends before it has taken them.
    """

    def __init__(
        self, name: str, target: Callable[..., None], *args: Any, timeout: float = 600.0
    ) -> None:
        self.name = name
        self.timeout = timeout
        self._has_begun = False
        self._is_given_up = False
        context = _context(target)
        try:
            payload = cloudpickle.dumps((target, args))
        except Exception as error:
            raise ConfigError(
                f"{name} cannot be started, since what it works on cannot be sent to another "
                f"process: {error}. A function that makes environments has to make what these "
                "need as well: locks, connections, open files."
            ) from error
        self._connection, theirs = context.Pipe()
        # Not daemonic: it may have children of its own, and is ended by `_end` all the same.
        process = context.Process(target=work, args=(theirs,), name=name)
        try:
            process.start()
        except (EOFError, ConnectionError) as error:
            raise ChildError(
                f"{name} could not be started: the process that starts others has ended. A signal "
                "that was sent to all processes of the run may have ended it."
            ) from error
        theirs.close()  # so that the child's end is the end of the connection
        self._process: BaseProcess = process
        self.pid = process.pid
        self._poll = select.poll()
        self._poll.register(self._connection.fileno(), select.POLLIN)
        self.close = weakref.finalize(self, _end, process, self._connection)
        self.send(payload)

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            ChildError: If the process has died.
        """
        try:
            self._connection.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            # It may have said why before it died.
            while True:
                self.receive()

    def receive(self) -> bytes:
        """Wait for the next answer.

        Raises:
            ChildError: If the process has died, or does not answer in time.
            Exception: What was raised in the child, with the traceback there as its cause.
        """
        if self._is_given_up or not self._has_answer():
            self._is_given_up = True  # a late answer would be taken for the next one
            raise ChildError(
                f"{self.name} (process {self.pid}) has not answered for {self.timeout:g} seconds. "
                "If its work takes longer, raise the timeout; else look for what it waits for."
            )
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):  # the latter if it died in the midst of a message
            raise ChildError(self._obituary()) from None
        self._has_begun = True
        if message[:1] == ERROR:
            error, text = pickle.loads(message[1:])
            add_note(error, f"raised in {self.name} (process {self.pid})")
            raise error from RemoteError(text)
        return message[1:]

    def _has_answer(self) -> bool:
        """Wait for an answer; whether it came in time.

        The time is taken in slices, so that a run that was stopped and goes on, by Ctrl-Z or a
        scheduler that suspends jobs, has lost one slice at most.
        """
        left = self.timeout
        while left > 0:
            if self._poll.poll(min(left, _SLICE) * 1000):
                return True
            left -= _SLICE
        return False

    def call(self, message: Any) -> Any:
        """Send an object, pickled, and return the one that answers it."""
        self.send(cloudpickle.dumps(message))
        return pickle.loads(self.receive())

    def give_file(self, descriptor: int) -> None:
        """Give the child an open file; it takes it with `Channel.take_file`."""
        assert self.pid is not None
        reduction().send_handle(self._connection, descriptor, self.pid)

    def take_file(self) -> int:
        """The descriptor of the file that the child gives with `Channel.give_file`."""
        descriptor: int = reduction().recv_handle(self._connection)
        return descriptor

    def _obituary(self) -> str:
        self._process.join(_GRACE)
        code = self._process.exitcode
        if code == 1 and not self._has_begun:
            return (
                f"{self.name} (process {self.pid}) ended before it began its work; the message "
                "above says why. It imports the script first. So the script has to be a file, and "
                'to begin its own work below if __name__ == "__main__":'
            )
        return (
            f"{self.name} (process {self.pid}) {how_it_ended(code)}. A run that was saved goes on "
            "with --resume latest."
        )


def close_all(children: Sequence[Child]) -> None:
    """Close several children, which together have as long as one to end by themselves."""
    living = [child for child in children if child.close.alive]
    for child in living:
        child._connection.close()
    deadline = monotonic() + _GRACE
    for child in living:
        child._process.join(max(0.0, deadline - monotonic()))
    for child in living:
        if child._process.exitcode is None:
            child._process.kill()
        child.close()


def _end(process: BaseProcess, connection: Connection) -> None:
    """Have a child end: by itself, since its connection ends, or by force."""
    connection.close()
    process.join(_GRACE)
    if process.exitcode is None:
        process.kill()
        process.join()
    process.close()


def _context(target: Callable[..., None]) -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # What the first child needs is imported by the server, once for all of them.
    context.set_forkserver_preload([target.__module__])
    with _sigint_ignored(), unpinned():
        forkserver.ensure_running()
    return context


@contextmanager
def _sigint_ignored() -> Iterator[None]:
    """What is started in the block ignores SIGINT, and so does what that starts.

    A terminal sends SIGINT to a process that is still importing the script as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
