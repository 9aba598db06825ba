"""Python programs: `run_program` runs one in this process, `ChildProgram` in another.

As a script of arguments ``DIRECTORY [-m] TARGET ARGUMENTS``, this file runs ``python [-m] TARGET
ARGUMENTS`` in a directory, and ends when its standard input does.
"""

from __future__ import annotations

import os
import runpy
import select
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory that contains the package."""


def run_program(command: Sequence[str]) -> None:
    """Run a Python program in this process, as ``python`` would.

    Args:
        command: The arguments of ``python``: a script, or ``-m`` and a module, and its arguments.

    Raises:
        SystemExit: As the program does; with code 1 after an error, which has been printed.
    """
    sys.orig_argv = [sys.executable, *command]  # by which a run finds the command that started it
    is_module = command[0] == "-m"
    sys.argv = list(command[is_module:])
    path = os.path.abspath(sys.argv[0])
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # Python 3.10 has -I only
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(path))
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            # Not by runpy.run_path: threads and exit handlers that outlive the script's last line
            # may pickle what is in __main__, which that would have put back.
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            module.__file__ = path
            exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(module))
    except Exception as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this frame and before
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(1) from None


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
        environ = {**os.environ, **(environ or {})}
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(directory or Path.cwd()), *command],
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
        with self._process:  # whose end closes standard input, and waits
            self._process.kill()


def _parent_lives(parent: int) -> bool:
    # Not sys.stdin, which an interpreter that ends would wait for.
    has_closed = bool(select.select([0], [], [], 1.0)[0]) and not os.read(0, 1024)
    # A child that the parent has forked keeps its end of standard input open.
    return not has_closed and os.getppid() == parent


def _main() -> None:
    parent = os.getppid()
    # This package, whatever the program's directory contains.
    from hooktrainer.base.endings import end_with_parent

    end_with_parent(partial(_parent_lives, parent))
    directory, *command = sys.argv[1:]
    os.chdir(directory)
    run_program(command)


if __name__ == "__main__":
    _main()
