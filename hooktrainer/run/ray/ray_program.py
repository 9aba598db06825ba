"""`RayProgram`: a Python command on whichever machine of a Ray cluster has a core for it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.child_program import ChildProgram
from .cluster import Cluster, import_ray

_TAIL = 4_000  # bytes


class RayProgram:
    """A command that runs in the same directory as here, on some machine of a cluster.

    It is a `hooktrainer.run.programs.RunningProgram`. If it fails, what it said last is said here.
    It ends when this process does.

    Args:
        cluster: The cluster.
        command: What follows ``python``, as for `ChildProgram.of_command`.
    """

    def __init__(self, cluster: Cluster, command: Sequence[str]) -> None:
        self._ray = import_ray()
        options = {**cluster.options("cpu", None), "max_concurrency": 2}
        self._actor = self._ray.remote(_There).options(**options).remote(command, os.getcwd())
        self._end = self._actor.wait.remote()
        self._code: int | None = None

    @property
    def code(self) -> int | None:
        """The exit code; `None` while it runs, or waits for a core."""
        if self._code is None and self._ray.wait([self._end], timeout=0)[0]:
            try:
                self._code, said = self._ray.get(self._end)
            except self._ray.exceptions.RayError as error:  # its machine is gone, for example
                self._code, said = 1, str(error)
            if self._code:
                print(said, file=sys.stderr, flush=True)
        return self._code

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._actor.terminate.remote()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end, and return the exit code; `None` if that took longer."""
        self._ray.wait([self._end], timeout=seconds)
        return self.code

    def close(self, grace: float) -> None:
        """Let go of the core, and kill the program if it has not ended after ``grace`` seconds."""
        self.wait(grace)
        self._ray.kill(self._actor)


class _There:
    """The program, on its machine.

    Args:
        command: As for `RayProgram`.
        directory: Where it works.
    """

    def __init__(self, command: Sequence[str], directory: str) -> None:
        self._said: Any = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this is
        self._child = ChildProgram.of_command(
            command, Path(directory), stdout=self._said, stderr=self._said
        )

    def wait(self) -> tuple[int, str]:
        """Its exit code, and what it said last."""
        code = self._child.wait() or 0
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _TAIL))
        return code, self._said.read().decode(errors="replace").strip()

    def terminate(self) -> None:
        """Have it save and end."""
        self._child.terminate()
