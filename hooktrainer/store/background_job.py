"""One job at a time in a thread, whose failure is raised where the owner looks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundJob:
    """Runs one function at a time in the background.

    The thread is not a daemon: an interpreter that ends waits for the job.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def running(self) -> bool:
        """Whether a job is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, function: Callable[[], object]) -> None:
        """Begin a job; call `wait` before."""
        self._thread = threading.Thread(target=self.run, args=(function,), name=self._name)
        self._thread.start()

    def run(self, function: Callable[[], object]) -> None:
        """Do a job here and now; `wait` returns what it failed with, as after `start`."""
        try:
            function()
        except BaseException as error:  # handed over by wait()
            self._error = error

    def wait(self) -> BaseException | None:
        """Wait for the job to end, and return the exception it ended with, once."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        error, self._error = self._error, None
        return error
