"""Runs programs in forks of a process that has imported what they import, which takes seconds."""

from __future__ import annotations

import atexit
import multiprocessing as mp
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess

CONTEXT = mp.get_context("forkserver")


def warm_up() -> None:
    """Start the process that is forked, with `warm` imported."""
    CONTEXT.set_forkserver_preload(["warm"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def run(script: Path, *words: object, where: Path, seconds: float = 300.0) -> CompletedProcess[str]:
    """What ``subprocess.run([sys.executable, script, *words], cwd=where)`` gives.

    Args:
        script: The program's file.
        *words: Its arguments.
        where: Its working directory.
        seconds: After which it is killed.
    """
    warm_up()
    command = [str(script), *map(str, words)]
    with tempfile.TemporaryDirectory() as kept:
        printed = Path(kept, "out"), Path(kept, "err")
        process = CONTEXT.Process(target=_call, args=(command, where, printed))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        out, err = (file.read_text() for file in printed)
    assert process.exitcode is not None
    return CompletedProcess(command, process.exitcode, out, err)


def _call(command: Sequence[str], where: Path, printed: Sequence[Path]) -> None:
    """Be the program: its directory, arguments, output and exit code."""
    os.chdir(where)
    for number, path in enumerate(printed, 1):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, closefd=False) for n in (1, 2))
    sys.argv = list(command)
    sys.path.insert(0, str(Path(command[0]).parent))
    mp.current_process()._config.pop("daemon", None)
    code = 0
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
