"""`hooktrainer resume`: goes on with a run, by the script and arguments it was begun with."""

from __future__ import annotations

import os
import shlex
import sys

from . import output
from .arguments import RunPath, ScriptArgs


def resume(run: RunPath, args: ScriptArgs = (), /) -> int:
    """Go on with a run from its latest checkpoint.

    Starts the script that began it, in the directory where it was begun, with the same arguments.
    A finished run has nothing left to do, unless there is more of it now:

    hooktrainer resume runs/a -- --total-frames 200000

    The exit code is the script's.

    Args:
        run: directory of the run
        args: after --, further arguments of the script; they come last
    """
    from ..errors import NotFoundError
    from ..run_dir import RunDir
    from .places import checkpoints_of
    from .scripts import command_of, refuse_run_options

    checkpoints_of(run)
    refuse_run_options(args)
    state = RunDir(run).read()
    place = ["--run-dir", str(run.absolute()), "--resume", "latest"]
    command = [*command_of(run, state), *place, *args]
    output.say(shlex.join(command))
    try:
        os.chdir(state["cwd"])
    except OSError as error:
        raise NotFoundError(
            f"{run} was begun in {state['cwd']}, which is not to be had ({error.strerror}): start "
            "the command above where you like."
        ) from None
    sys.stdout.flush()
    # The script takes the place of this process: signals, terminal and exit code are its own.
    os.execv(command[0], command)
