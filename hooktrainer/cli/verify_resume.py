"""`hooktrainer verify-resume`: compare a killed and resumed run with an uninterrupted one."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from ..errors import CheckpointError, ConfigError
from . import output
from .arguments import Directory, Flag, Patterns, ScriptArgs, Seed, shown_as
from .killing import (
    RunTooShortError,
    ScriptFailedError,
    run_killed,
    run_straight,
    workplace,
)
from .scripts import find_trainable, refuse_run_options

if TYPE_CHECKING:
    from .compare import Compared

_ATTEMPTS = 4

Trainable = Annotated[str, Positional, shown_as("SCRIPT|NAME")]


def verify_resume(
    script: Trainable,
    args: ScriptArgs = (),
    /,
    *,
    kills: int = 3,
    seed: Seed = None,
    keep: Directory = None,
    ignore: Patterns = (),
    json: Flag = False,
) -> int:
    """Check that a killed and resumed run equals a run that was never interrupted.

    Runs a script to its end; then again, killing it with SIGKILL at random instants and resuming
    it. Compares the final checkpoints, every row of metrics.csv and every scalar of TensorBoard,
    bit for bit, and names the first difference. Left out are times: the metrics time/*, the seconds
    trained, cadences in seconds, the positions of the loggers.

    The script takes --run-dir DIR and --resume latest, as every recipe does. It inherits the
    environment, CKPT_BACKEND included.

    The exit code is 0 if the two are identical, 1 if they differ or the script fails. The two runs
    are kept then.

    Example: hooktrainer verify-resume recipes/ppo_cartpole.py --kills 3 -- --seed 1

    Args:
        script: a training script, or the name of a recipe or algorithm
        args: after --, arguments of the script
        kills: how often to kill it; with 0, it is only run twice
        seed: seed of the instants; by default random
        keep: keep the two runs in this directory, as straight/ and killed/
        ignore: leave out matching paths, such as 'components/hook/mine/*'; may be repeated
        json: print JSON: what was compared, and every difference
    """
    if kills < 0:
        raise ConfigError(f"--kills {kills}: it must not be negative.")
    program = find_trainable(script).command
    refuse_run_options(args)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    command = [*program, *args]
    with workplace("verify-resume", keep, _check_free) as place:
        try:
            compared = _run_both(command, place, kills, random.Random(seed), ignore)
        except ScriptFailedError as error:
            output.note(f"error: {error}")
            compared = None
        identical = compared is not None and not any(part.found for part in compared)
        if identical and keep is None:
            shutil.rmtree(place)
        else:
            output.note(f"seed {seed}; the two runs, and what they printed, are in {place}")
    if compared is not None:
        _report(compared, identical, json)
    return 0 if identical else 1


def _run_both(
    command: list[str], place: Path, kills: int, rng: random.Random, ignore: tuple[str, ...]
) -> list[Compared]:
    from .compare import compare_runs

    straight_run, killed_run = place / "straight", place / "killed"
    straight = run_straight(command, straight_run, place / "straight.log")
    output.note(f"straight: {straight.frames:,} frames in {straight.seconds:.2f} s")
    if not straight.frames:
        raise CheckpointError(f"the script saved no checkpoint in {straight_run}/checkpoints.")
    log = place / "killed.log"
    for attempt in range(_ATTEMPTS):
        try:
            run_killed(command, killed_run, log, kills, straight, rng, shrink=0.8**attempt)
            break
        except RunTooShortError as error:
            if attempt == _ATTEMPTS - 1:
                raise
            output.note(f"it ended before the next kill; the kills are repeated ({error})")
            shutil.rmtree(killed_run)
    return compare_runs(straight_run, killed_run, ignore)


def _report(compared: list[Compared], identical: bool, json: bool) -> None:
    if json:
        parts = [
            {"part": one.part, "leaves": one.leaves, "differences": one.found} for one in compared
        ]
        output.print_json({"identical": identical, "parts": parts})
        return
    rows = [(part.part, part.leaves, _verdict(part)) for part in compared]
    output.print_table(("compared", "leaves", "straight | killed"), rows)
    first = next((part.found[0] for part in compared if part.found), None)
    output.line("identical" if first is None else f"different: {first}")


def _verdict(part: Compared) -> object:
    if part.found:
        return output.bad(f"{len(part.found):,} differ, the first: {part.found[0]}")
    return output.good("identical") if part.leaves else "none there"


def _check_free(keep: Path) -> None:
    for name in ("straight", "killed", "straight.log", "killed.log"):
        if os.path.lexists(keep / name):
            raise FileExistsError(f"{keep / name} is there already; choose another --keep.")
