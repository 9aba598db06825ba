"""The program that runs a Python command, and ends when the process that started it does.

``python -m hooktrainer.base.tied_program DIRECTORY [-m] TARGET ARGUMENTS`` is ``python [-m] TARGET
ARGUMENTS`` in a directory; see `tied`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from .child_program import ChildProgram, end_with_parent


def tied(
    command: Sequence[str],
    directory: Path | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> ChildProgram:
    """Start a Python command that would not end by itself when this process does.

    To the command it is as if it had been started by itself: it imports modules of its directory.

    Args:
        command: What follows ``python``: a script, or ``-m`` and a module, and its arguments.
        directory: Where it works; by default where this process does.
        stdout: As for `ChildProgram`, but that it is by default where this process writes.
        stderr: Likewise.
    """
    place = str(directory or Path.cwd())
    return ChildProgram(
        "hooktrainer.base.tied_program", place, *command, stdout=stdout, stderr=stderr
    )


if __name__ == "__main__":
    end_with_parent()
    directory, *command = sys.argv[1:]
    os.chdir(directory)
    os.environ.pop("PYTHONSAFEPATH", None)  # which this process was given, not the command
    sys.orig_argv = [sys.executable, *command]  # by which a run tells what began it
    if command[0] == "-m":
        sys.path.insert(0, directory)
        sys.argv = command[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).absolute().parent))
        sys.argv = command
        runpy.run_path(sys.argv[0], run_name="__main__")
