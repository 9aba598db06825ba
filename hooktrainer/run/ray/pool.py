"""`Worker`: a process of a Ray cluster that is begun again when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...errors import add_note
from .cluster import import_ray

_LOOK = 1.0  # seconds between two looks at a process that works


class RayWorkerError(RuntimeError):
    """A process of a Ray cluster fails again and again, or does not answer."""


class Worker:
    """A process of a Ray cluster, with at most one call under way.

    If the process or its machine dies, another one is begun and given the call again. What a call
    raises is raised here, with the process's traceback.

    Args:
        name: For messages, such as ``"collector 1"``.
        begin: Begins the process; called with the number of times that was done before.
        timeout: Seconds after which a call is given up.
        patience: How often in a row a process may die before it has finished a call.

    Attributes:
        restarts: How often the process was begun again.
    """

    def __init__(
        self, name: str, begin: Callable[[int], Any], *, timeout: float, patience: int = 3
    ) -> None:
        self._ray = import_ray()
        self.name = name
        self._begin = begin
        self._timeout = timeout
        self._patience = patience
        self.restarts = 0
        self._failures = 0
        self._actor: Any = None
        self._call: tuple[str, tuple[Any, ...]] | None = None
        self._ref: Any = None

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._call is not None

    def submit(self, method: str, *args: Any) -> None:
        """Begin a call; `result` waits for it."""
        assert self._call is None, f"{self.name} is busy"
        self._call = (method, args)
        self._send()

    def _send(self) -> None:
        assert self._call is not None
        method, args = self._call
        if self._actor is None:
            self._actor = self._begin(self.restarts)
        self._ref = getattr(self._actor, method).remote(*args)

    def ready(self) -> bool:
        """Whether the call under way has ended."""
        return bool(self._ray.wait([self._ref], timeout=0)[0])

    def result(self) -> Any:
        """Wait for the call under way and return what it returns.

        Raises:
            Exception: What the call raises.
            RayWorkerError: If the process dies again and again, or does not answer.
        """
        assert self._call is not None, f"{self.name} has nothing to do"
        started = time.monotonic()
        while True:
            if not self._ray.wait([self._ref], timeout=_LOOK)[0]:
                if time.monotonic() - started > self._timeout:
                    self.kill()
                    raise RayWorkerError(
                        f"{self.name} has not answered for {self._timeout:g} s. Either it is "
                        "stuck, or the cluster has no free CPU for it: see 'ray status'. If it "
                        "merely takes long, wait longer with --timeout."
                    )
                continue
            try:
                value = self._ray.get(self._ref)
            except self._ray.exceptions.RayTaskError as error:
                self._call = self._ref = None
                add_note(error, f"in {self.name}, a process of the Ray cluster")
                raise
            except self._ray.exceptions.RayError as error:
                if getattr(error, "actor_init_failed", False):
                    self.kill()
                    raise RayWorkerError(f"{self.name} could not begin: {error}") from error
                # The process is gone, or its machine with what it had made.
                self._restart(error)
                started = time.monotonic()
                continue
            self._failures = 0
            self._call = self._ref = None
            return value

    def _restart(self, error: Exception) -> None:
        self._failures += 1
        if self._failures > self._patience:
            raise RayWorkerError(
                f"{self.name} died {self._failures} times in a row: {error}"
            ) from error
        self._drop()
        self.restarts += 1
        self._send()

    def _drop(self) -> None:
        if self._actor is not None:
            self._ray.kill(self._actor, no_restart=True)
            self._actor = None

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._call = self._ref = None
        if self._ray.is_initialized():
            self._drop()
