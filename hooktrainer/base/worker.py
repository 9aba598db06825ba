"""`Worker`: a process that runs a function for this one, sends it messages, and ends with it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal

import cloudpickle

from ..errors import ConfigError, add_note
from .channel import ERROR, Channel, ChildError, RemoteError
from .ending_signals import ENDING

_BEAT = 1.0  # seconds between two looks whether the parent still lives

Start = Literal["fork", "spawn"]


class Worker:
    """A process that runs one function, and messages between it and this process.

    A forked worker begins with all that this process has imported and computed. Its random
    generators are copies of this process's. It is forked from a new thread, which is its main
    thread: an OpenMP pool belongs to the thread that made it, so the worker makes its own. A
    spawned worker imports everything again, and gets its function and arguments pickled.

    The worker is in a session of its own, so that a terminal's Ctrl-C reaches this process alone.
    It handles signals as a new program does. What it prints is discarded; its standard error is
    this process's. It ends when this process does, even by SIGKILL.

    Args:
        name: For messages, such as ``"seed 3"``.
        target: Called in the worker with its `Channel` and ``args``.
        args: What ``target`` takes after the channel.
        start: How the process is started.

    Attributes:
        name: As given.
        pid: Number of the process.
        connection: Where its messages arrive, for `multiprocessing.connection.wait`.

    Raises:
        ConfigError: If it is spawned, and the function or an argument cannot be pickled.
    """

    def __init__(
        self, name: str, target: Callable[..., object], *args: Any, start: Start = "fork"
    ) -> None:
        self.name = name
        context: Any = multiprocessing.get_context(start)
        self.connection, theirs = context.Pipe()
        run: Any = (target, args)
        inherited = [self.connection]
        if start == "spawn":
            run, inherited = _pickled(name, target, args), []
        self._process = context.Process(
            target=_work, args=(theirs, inherited, os.getpid(), run), name=name
        )
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # else a forked worker writes out what is buffered once more
                stream.flush()
        thread = threading.Thread(target=self._start)
        thread.start()
        thread.join()
        theirs.close()  # so that the end of the worker is the end of the connection
        self.pid: int = self._process.pid

    def _start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until it has its own handlers
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads, of which those here hold no lock that a worker uses.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def receive(self) -> Any:
        """Wait for the next message.

        Raises:
            ChildError: If the process has ended without one; the message names how.
            Exception: What the function raised, with the traceback there as its cause.
        """
        try:
            message = self.connection.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            raise ChildError(how_it_ended(self._process.exitcode)) from None
        if message[:1] == ERROR:
            error, text = pickle.loads(message[1:])
            add_note(error, f"raised in {self.name} (process {self.pid})")
            raise error from RemoteError(text)
        return pickle.loads(message[1:])

    def send(self, message: Any) -> None:
        """Send a message, unless the process has ended."""
        with suppress(OSError):
            self.connection.send_bytes(cloudpickle.dumps(message))

    @property
    def code(self) -> int | None:
        """The exit code, -n after signal n; `None` while the process runs."""
        code: int | None = self._process.exitcode
        return code

    def terminate(self) -> None:
        """Send it SIGTERM, unless it has ended."""
        self._process.terminate()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end, and return the exit code; `None` if that took longer."""
        self._process.join(seconds)
        return self.code

    def close(self, grace: float = 0.0) -> None:
        """Kill it if it has not ended after ``grace`` seconds."""
        if self.wait(grace) is None:
            self._process.kill()
            self._process.join()
        self.connection.close()


def how_it_ended(code: int | None) -> str:
    """How a process ended, by its exit code, after "it"."""
    if code is None:
        return "closed its connection"
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL; memory may have run out, which the system's log tells"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}; PYTHONFAULTHANDLER=1 shows where"
    return f"ended with exit code {code}"


def native_threads() -> int:
    """How many threads this process has, those of libraries included; 0 if it cannot be known."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


class frozen_heap:  # noqa: N801 - a context manager
    """In the block, the garbage collector leaves what there is alone.

    Otherwise its first collection in a forked worker writes to every object, and so copies the
    memory that it shares with this process.
    """

    def __enter__(self) -> None:
        gc.collect()
        gc.freeze()

    def __exit__(self, *error: object) -> None:
        gc.unfreeze()


def _pickled(name: str, target: Callable[..., object], args: tuple[Any, ...]) -> bytes:
    try:
        return cloudpickle.dumps((target, args))
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be trained in another process, to which what it is made of cannot be "
            f"sent: {error}. Pass what can be pickled, such as an environment's id or a function "
            "that makes it."
        ) from error


def _work(connection: Connection, inherited: list[Connection], parent: int, run: Any) -> None:
    """What the process does."""
    for one in inherited:
        one.close()
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    with suppress(OSError):
        os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    sys.stdout = open(nowhere, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    channel = Channel(connection)
    threading.Thread(target=_beat, args=(channel, parent), daemon=True).start()
    code = 0
    try:
        target, args = pickle.loads(run) if isinstance(run, bytes) else run
        target(channel, *args)
    except BaseException as error:
        code = 1
        with suppress(OSError):
            channel.send_error(error)
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
    os._exit(code)  # what Python tidies up at its end takes as long as some runs


def _beat(channel: Channel, parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_BEAT)
        if channel.pulse is not None:
            with suppress(OSError):
                channel.send_object(channel.pulse())
    os._exit(1)
