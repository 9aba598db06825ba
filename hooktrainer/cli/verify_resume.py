"""`hooktrainer verify-resume`: compare a killed and resumed run with an uninterrupted one."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from ..base.checks import check_count
from ..base.child_program import ChildProgram
from ..base.words import plural
from ..errors import CheckpointError, ConfigError, TakenError
from ..loop.signals import ending_cleanly
from ..store import list_checkpoints
from ..store.run_dir import RunDir
from . import output
from .arguments import Directory, Flag, OptionalSeed, Patterns, ScriptArgs, shown_as
from .scripts import MIRROR_OPTIONS, find_trainable, refuse_run_options, without

if TYPE_CHECKING:
    from .compare import Compared

_PART = 0.8  # of the time of the uninterrupted run, within which all kills happen

Trainable = Annotated[str, Positional, shown_as("SCRIPT|NAME")]


def verify_resume(
    script: Trainable,
    args: ScriptArgs = (),
    /,
    *,
    kills: int = 3,
    seed: OptionalSeed = None,
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
    environment, CKPT_BACKEND included. --mirror is left out.

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
    check_count("--kills", kills, least=0)
    program = find_trainable(script).command
    refuse_run_options(args)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    command = [*program, *without(args, MIRROR_OPTIONS)]
    with workplace("verify-resume", keep) as (place, removal):
        try:
            compared = _run_both(command, place, kills, random.Random(seed), ignore)
        except ScriptFailedError as error:
            output.note(f"error: {error}")
            compared = None
        identical = compared is not None and not any(part.found for part in compared)
        if not identical or keep is not None:
            removal.pop_all()
            output.note(f"seed {seed}; the two runs, and what they printed, are in {place}")
    if compared is not None:
        _report(compared, identical, json)
    return 0 if identical else 1


def _run_both(
    command: list[str], place: Path, kills: int, rng: random.Random, ignore: tuple[str, ...]
) -> list[Compared]:
    from .compare import compare_runs

    straight, killed = place / "straight", place / "killed"
    with running(command, straight, place / "straight.log") as script:
        _wait_for_first_write(script, straight)
        started = time.monotonic()
        finish(script, place / "straight.log")
    seconds, frames = time.monotonic() - started, committed_frames(straight)
    output.note(f"straight: {frames:,} frames in {seconds:.2f} s")
    if not frames:
        raise CheckpointError(f"the script saved no checkpoint in {straight}/checkpoints.")
    log = place / "killed.log"
    for number in range(1, kills + 1):
        instant = _PART * seconds / kills * rng.random()
        with running(command, killed, log) as script:
            _wait_for_first_write(script, killed)
            started = time.monotonic()
            _wait_for(script, lambda: time.monotonic() >= started + instant)  # noqa: B023
            if number == kills:
                _wait_for(script, lambda: committed_frames(killed) > 0)
            if script.code is not None:
                finish(script, log)
                raise ConfigError(
                    f"the run ended before it could be killed {plural(kills, 'time')}; give it "
                    "more frames."
                )
            script.kill()
            after = time.monotonic() - started
        saved = f"{committed_frames(killed):,} of {frames:,} frames saved"
        output.note(f"kill {number} of {kills}: {after:.2f} s after its first write, {saved}")
    with running(command, killed, log) as script:
        finish(script, log)
    return compare_runs(straight, killed, ignore)


def _report(compared: list[Compared], identical: bool, json: bool) -> None:
    if json:
        parts = [
            {"part": one.part, "leaves": one.leaves, "differences": one.found} for one in compared
        ]
        output.print_json({"identical": identical, "parts": parts})
        return
    rows = [
        (
            *(part.part, part.leaves),
            output.bad(f"{len(part.found):,} differ")
            if part.found
            else output.good("identical" if part.leaves else "none there"),
        )
        for part in compared
    ]
    output.print_table(("compared", "leaves", "straight | killed"), rows)
    first = next((part.found[0] for part in compared if part.found), None)
    output.line("identical" if first is None else f"different: {first}")


# -- Training scripts as child programs.


class ScriptFailedError(RuntimeError):
    """The script ended with an error; the message holds its last lines."""


@contextmanager
def running(
    command: Sequence[str], run: Path, log: Path, directory: Path | None = None, **options: Any
) -> Iterator[ChildProgram]:
    """Run a training script, which is killed at the end of the block.

    Args:
        command: Its command line, without ``--run-dir`` and ``--resume``; a run that was begun is
            resumed.
        run: Directory of the run, or of those of several seeds.
        log: File that its output is added to.
        directory: Working directory.
        options: Further ones of `ChildProgram`.
    """
    words = [*command[1:], "--run-dir", str(run)]
    if RunDir(run).holds_run or any(run.glob("seed*")):
        words = [*without(words, ("--fork",)), "--resume", "latest"]
    with log.open("ab") as printed:
        script = ChildProgram(words, directory, printed, printed, **options)
    try:
        yield script
    finally:
        script.kill()


def finish(script: ChildProgram, log: Path) -> None:
    """Wait until a script has ended; raise ScriptFailedError if its exit code is not 0."""
    code = script.wait() or 0
    if code:
        how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
        lines = log.read_bytes().decode(errors="replace").rstrip().split("\n")[-20:]
        # A progress bar overwrites itself: keep its last state.
        last = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        raise ScriptFailedError("\n".join([f"the script {how}; its last lines:", *last]))


def _wait_for_first_write(script: ChildProgram, run: Path) -> None:
    """Wait until a script has written to its run, or ended."""
    file, begun = RunDir(run).run_file, time.time()
    _wait_for(script, lambda: file.exists() and file.stat().st_mtime > begun)


def _wait_for(script: ChildProgram, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, or a script has ended."""
    while script.code is None and not condition():
        time.sleep(0.005)


def committed_frames(run: Path) -> int:
    """Return the frames in the latest checkpoint of a run; 0 if there is none."""
    checkpoints = list_checkpoints(RunDir(run).checkpoints).checkpoints
    return checkpoints[-1].manifest.frames if checkpoints else 0


@contextmanager
def workplace(
    command: str, keep: Path | None, begun: str | None = None
) -> Iterator[tuple[Path, ExitStack]]:
    """Make the directory to train in: ``keep``, or a temporary one.

    The stack removes a temporary one at the end of the block; ``pop_all()`` leaves it there. A
    directory with a file ``begun`` is used again.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()) and not (begun and (keep / begun).exists()):
            raise TakenError(f"{keep} is not empty; choose another --keep.")
    place = keep or Path(tempfile.mkdtemp(prefix=f"hooktrainer-{command}-"))
    with ExitStack() as removal, ending_cleanly():  # a signal removes it, too
        if keep is None:
            removal.callback(shutil.rmtree, place, ignore_errors=True)
        yield place, removal
