"""`Channel`: what a function that runs in a `Child` knows of its parent, and how it is run."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import cloudpickle

from ..errors import place_of
from .ending_signals import ENDING

RESULT: Final = b"r"
"""What an answer begins with."""
ERROR: Final = b"e"
"""What an answer begins with that is an exception."""


class ChildError(RuntimeError):
    """A process that works for this one has died, or does not answer."""


class ClosedError(EOFError):
    """The parent has closed its end of the connection: a child ends then without a word."""


class RemoteError(Exception):
    """The cause of an error that was raised in a child: the traceback there, as text."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Channel:
    """The child's end of the connection.

    Attributes:
        pulse: In a `Worker`, called every second from another thread; what it returns is sent.
    """

    pulse: Callable[[], Any] | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            ClosedError: If there will be none.
        """
        try:
            return self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise ClosedError from None

    def send(self, answer: bytes) -> None:
        """Send an answer."""
        with self._sending:
            self._connection.send_bytes(RESULT + answer)

    def send_object(self, answer: Any) -> None:
        """Send an object as an answer, pickled."""
        self.send(cloudpickle.dumps(answer))

    def send_error(self, error: BaseException) -> None:
        """Have the parent raise ``error`` where it waits for an answer.

        What is not an `Exception`, as ``sys.exit()`` in an environment, would end the parent
        without a word: it becomes a `ChildError`, as does what cannot be sent.
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
            self._connection.send_bytes(ERROR + data)

    def take_file(self) -> int:
        """The descriptor of the file that the parent gives."""
        descriptor: int = reduction().recv_handle(self._connection)
        return descriptor

    def give_file(self, descriptor: int) -> None:
        """Give the parent an open file; it takes it with `Child.take_file`."""
        parent = multiprocessing.parent_process()
        assert parent is not None
        reduction().send_handle(self._connection, descriptor, parent.pid)


def work(connection: Connection) -> None:
    """What a child does: it takes a function and its arguments, and calls it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    channel = Channel(connection)
    try:
        target, args = pickle.loads(channel.receive())
        target(channel, *args)
    except ClosedError:
        pass
    except BaseException as error:
        with suppress(OSError):
            channel.send_error(error)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def reduction() -> Any:
    """What gives open files to other processes."""
    return multiprocessing.reduction
