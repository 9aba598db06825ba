"""`hooktrainer resume`: continue a run with the script and arguments that began it."""

from __future__ import annotations

import os
import shlex
import sys

from ..errors import NotFoundError
from ..store.provenance import replace_process
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, RunPath, ScriptArgs
from .output import checkpoints_of
from .scripts import check_own, command_of, place_of, refuse_run_options


def resume(run: RunPath, args: ScriptArgs = (), /, *, trust: Flag = False) -> int:
    """Continue a run from its latest checkpoint.

    Starts the script that began it, in the directory where it was begun, with the same arguments. A
    finished run has nothing left to do, unless its length is extended:

    hooktrainer resume runs/a -- --total-frames 200000

    The command is read from the run's directory. If you did not begin the run on this machine, the
    command is printed, and only run with --trust.

    The exit code is the script's.

    Args:
        run: directory of the run
        args: after --, further arguments of the script; they come last
        trust: run the command although the run was begun by another user, or on another machine
    """
    checkpoints_of(run)
    refuse_run_options(args)
    held = RunDir(run)
    state = held.read()
    place = place_of(run, held.read_config(), state.get("seed"))
    command = [*command_of(run, state), *place, "--resume", "latest", *args]
    check_own(run, state, command, trust=trust)
    output.note(shlex.join(command))
    try:
        os.chdir(str(state.get("cwd")).replace("\0", ""))
    except OSError as error:
        raise NotFoundError(
            f"{run} was begun in {state.get('cwd')}, which cannot be entered ({error.strerror}): "
            "start the command above elsewhere."
        ) from None
    sys.stdout.flush()
    # The script takes the place of this process: signals, terminal and exit code are its own.
    replace_process(command)
