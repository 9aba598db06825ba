"""`ChildProgram`: a Python program that runs next to this process and ends with it.

``python -m hooktrainer.base.child_program DIRECTORY [-m] TARGET ARGUMENTS`` runs ``python [-m]
TARGET ARGUMENTS`` in a directory, and ends when its standard input does.
"""

from __future__ import annotations

import os
import runpy
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory that contains the package."""


class ChildProgram:
    """A Python command, run as if started alone, that ends when this process does, for any reason.

    It has its own session, so that no signal to this process's group reaches it, and imports this
    package from the same place. To run a function in another process, use
    `hooktrainer.base.worker.Worker`.

    Args:
        command: The arguments of ``python``: a script, or ``-m`` and a module, and its arguments.
        directory: Working directory; by default this process's.
        stdout: As for `subprocess.Popen`; inherited by default.
        stderr: As for `subprocess.Popen`; inherited by default.
        environ: Additional environment variables.

    Attributes:
        pid: Number of the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = {**os.environ, **(environ or {}), "PYTHONSAFEPATH": "1"}
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(directory or Path.cwd()), *command],
            env={**environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; `None` while it runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end, and return the exit code; `None` on a timeout."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._process.terminate()

    def close(self, grace: float) -> None:
        """Close its standard input, and kill it if it has not ended after ``grace`` seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.wait(grace) is None:
            self.kill()

    def kill(self) -> None:
        """Kill it."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()


def _follow_parent(parent: int) -> None:
    # A child that the parent has forked keeps its end of standard input open.
    while os.getppid() == parent:
        # Not sys.stdin, which an interpreter that ends would wait for.
        if select.select([0], [], [], 1.0)[0] and not os.read(0, 1024):
            break
    os._exit(1)


def _main() -> None:
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    directory, *command = sys.argv[1:]
    os.chdir(directory)
    os.environ.pop("PYTHONSAFEPATH", None)  # which this process was given, not the command
    sys.orig_argv = [sys.executable, *command]  # by which a run finds the command that started it
    if command[0] == "-m":
        sys.path.insert(0, directory)
        sys.argv = command[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).absolute().parent))
        sys.argv = command
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main()
