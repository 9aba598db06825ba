"""Collecting in a process of its own."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import torch

from ...base.worker import Channel, Worker
from ...errors import ConfigError
from . import packing
from .server import CollectorServer, Inbox, Request

NAME = "the collecting process"


class ProcessWorker:
    """A process that collects with a copy of a collector.

    Args:
        collector: The collector. It is shut down: the process makes its own environments.
        newest: See `CollectorServer`.
        timeout: Seconds to wait for an answer.

    Attributes:
        name: For messages and traces.
        pid: Number of the process.

    Raises:
        ConfigError: If the collector cannot be sent to another process.
    """

    name = NAME

    def __init__(self, collector: Any, newest: bool, timeout: float) -> None:
        try:
            payload = packing.dump(collector)
        except Exception as error:
            raise ConfigError(
                f"{type(collector).__name__} cannot be sent to another process: {error}. Give it "
                "environments by id or factory, or collect in a thread: mode='thread'."
            ) from error
        collector.shutdown()
        settings = (torch.get_num_threads(), torch.get_default_dtype())
        self._worker = Worker(NAME, _work, payload, newest, *settings, timeout=timeout)
        self.pid = self._worker.pid

    def send(self, request: Request) -> None:
        """Send a request."""
        packing.send(self._worker, request)

    def receive(self) -> Any:
        """Wait for the next answer, and return it or raise what was raised there."""
        return packing.receive(self._worker)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._worker.close()


class _Stop(BaseException):
    """The learner has no more use for what is being collected."""


def _work(channel: Channel, payload: bytes, newest: bool, threads: int, dtype: torch.dtype) -> None:
    """What the process does."""
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    inbox, is_over = Inbox(), threading.Event()
    server = CollectorServer(packing.load(payload), inbox, newest)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if is_over.is_set() and server.is_busy:  # else somebody else sent it: the learner decides
            raise _Stop

    signal.signal(signal.SIGINT, interrupt)
    arguments = (channel, inbox, is_over, threading.get_ident())
    threading.Thread(target=_read, args=arguments, daemon=True).start()
    with suppress(_Stop):
        server.serve(lambda result: packing.send(channel, result), channel.send_error)


def _read(channel: Channel, inbox: Inbox, is_over: threading.Event, main: int) -> None:
    """Take in what the learner sends until it closes; then stop a batch under way."""
    try:
        while True:
            inbox.put(packing.receive(channel))
    except (EOFError, OSError):
        inbox.put(None)
        is_over.set()
        signal.pthread_kill(main, signal.SIGINT)
