"""Graceful shutdown on SIGINT, SIGTERM and SIGHUP within a time limit."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..base.endings import ENDING_SIGNALS, GRACE, has_default, is_importing
from ..base.notebook import in_kernel

if TYPE_CHECKING:
    from .control import Control


class SignalExit(SystemExit):
    """Ends the process with exit code 128 + the signal's number."""

    def __init__(self, number: int, why: str = "", deadline: float | None = None) -> None:
        super().__init__(128 + number)
        self.why = why or signal.Signals(number).name
        self.deadline = deadline

    def __str__(self) -> str:
        return self.why


class GracefulSignals:
    """Context manager that turns signals into requests.

    The first SIGINT, SIGTERM or SIGHUP requests a stop after the current batch, with a checkpoint;
    a second one aborts. SIGUSR1 requests a checkpoint. Signals that are ignored or have another
    handler are left alone, and so are all of them outside the main thread.

    Shortly before ``grace`` seconds have passed an unfinished batch is abandoned with a
    `SignalExit`. If even that does not end the process, as in a call that never returns, it exits
    immediately with the same code, unless it is the kernel of a notebook.
    """

    def __init__(
        self,
        control: Control,
        grace: float = GRACE,
        only_cleans_up: Callable[[Any], bool] = lambda handler: False,
    ) -> None:
        self._control = control
        self._grace = grace
        self._only_cleans_up = only_cleans_up
        self._previous: dict[int, Any] = {}
        self._orders: SimpleQueue[int | None] = SimpleQueue()  # may be used in a signal handler
        self._is_abandoned = False

    def __enter__(self) -> GracefulSignals:
        handlers: dict[int, Any] = dict.fromkeys(ENDING_SIGNALS, self._stop)
        handlers[signal.SIGUSR1] = self._save
        if threading.current_thread() is not threading.main_thread():
            handlers = {}
        for number, handler in handlers.items():
            before = signal.getsignal(number)
            is_ours = has_default(number) or before is _end_before_training
            if is_ours or self._only_cleans_up(before):
                self._previous[number] = signal.signal(number, handler)
        if self._previous:
            threading.Thread(target=self._watch, name="hooktrainer-grace", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        self._orders.put(None)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._is_abandoned:
            self._is_abandoned = False
            why = f"the batch was not done {self._grace:g} seconds after {name}"
            raise SignalExit(number, why, self._control.deadline)
        if self._control.deadline is not None:
            raise KeyboardInterrupt(f"a second signal ({name})")
        self._control.receive(number, self._grace)
        self._orders.put(number)
        _log(f"\n{name}: finishing the batch, within {self._grace:g} seconds; once more to abort.")

    def _save(self, number: int, frame: FrameType | None) -> None:
        self._control.request("save")

    def _watch(self) -> None:
        number = self._orders.get()
        if number is None:
            return
        name, deadline = signal.Signals(number).name, self._control.deadline
        assert deadline is not None
        if self._has_ended(deadline - min(3.0, self._grace / 4)):
            return
        if not self._control.is_leaving:
            _log(
                f"{name}: the batch is not done and is abandoned. The last checkpoint stands; "
                "--resume latest continues from it."
            )
            self._is_abandoned = True
            signal.pthread_kill(threading.main_thread().ident, number)  # type: ignore[arg-type]
        if not self._has_ended(deadline) and not in_kernel():
            _log(
                f"{name}: the run has not ended within {self._grace:g} seconds, and is cut off. "
                "--resume latest continues from its last checkpoint."
            )
            exit_now(128 + number)

    def _has_ended(self, deadline: float) -> bool:
        """Wait until ``deadline``; return whether the block was left before."""
        with suppress(Empty):
            self._orders.get(timeout=max(0.0, deadline - monotonic()))
            return True
        return False


@contextmanager
def interruptible() -> Iterator[None]:
    """In the block, which trains nothing, SIGINT raises `KeyboardInterrupt` at once."""
    before = signal.getsignal(signal.SIGINT)
    if not isinstance(getattr(before, "__self__", None), GracefulSignals):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """In the block, which is the whole program, a signal ends the process with one line.

    `Trainer.train` installs its own handlers. After a signal ended a run, the process is killed
    when its time is over.
    """
    default = [number for number in ENDING_SIGNALS if has_default(number)]
    previous = {number: signal.signal(number, _end_before_training) for number in default}
    try:
        yield
    except SignalExit as error:
        left = 5.0 if error.deadline is None else max(0.5, error.deadline - monotonic())
        timer = threading.Timer(left, exit_now, [error.code])
        timer.daemon = True
        timer.start()
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_now(code: int) -> None:
    """End the process immediately, after flushing standard output and error."""
    for stream in (sys.stdout, sys.stderr):
        flusher = threading.Thread(target=_flush, args=[stream], daemon=True)
        flusher.start()
        flusher.join(0.2)  # it may be held up
    os._exit(code)


def _flush(stream: Any) -> None:
    with suppress(Exception):  # it may be None, or a pipe without a reader
        stream.flush()


def _end_before_training(number: int, frame: FrameType | None) -> None:
    """The handler of `ending_cleanly`."""
    _log(f"\n{signal.Signals(number).name}: ended; no batch was under way.")
    if is_importing(frame):  # where an exception gets lost
        exit_now(128 + number)
    raise SignalExit(number)


def _log(text: str) -> None:
    # Not by way of sys.stderr, whose lock the interrupted code may hold.
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())
