"""Ending a run gracefully when the system or a person asks for it."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

from .control import Control


class GracefulSignals:
    """Turns signals into requests while a ``with`` block runs.

    The first SIGINT or SIGTERM asks the run to stop after the current batch; what follows is the
    normal end of a run, checkpoint included. A second one aborts it. SIGUSR1 asks for a checkpoint.
    A signal for which somebody else has installed a handler is left alone, and so are all of them
    outside the main thread.

    Args:
        control: Where requests go.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._previous: dict[int, Any] = {}
        self._received = False

    def __enter__(self) -> GracefulSignals:
        if threading.current_thread() is threading.main_thread():
            self._install(signal.SIGINT, self._stop)
            self._install(signal.SIGTERM, self._stop)
            if hasattr(signal, "SIGUSR1"):
                self._install(signal.SIGUSR1, self._save)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _install(self, number: int, handler: Any) -> None:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            self._previous[number] = signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._received:
            raise KeyboardInterrupt(f"a second signal ({name})")
        self._received = True
        self._control.receive(number)
        print(f"\n{name}: finishing the batch; once more to abort.", file=sys.stderr)

    def _save(self, number: int, frame: FrameType | None) -> None:
        self._control.request_save()
