"""`hooktrainer verify-resume`: compare a killed and resumed run with an uninterrupted one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tyro.conf import Positional

from ..base.words import plural
from ..errors import CheckpointError, ConfigError
from ..store import list_checkpoints
from ..store.run_dir import RunDir
from . import output
from .arguments import Directory, Flag, Patterns, ScriptArgs, Seed, shown_as
from .scripts import find_trainable, refuse_run_options, without

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
    with Script(command, straight_run, place / "straight.log") as script:
        started = script.wait_for_first_write()
        script.wait()
        straight = Uninterrupted(time.monotonic() - started, committed_frames(straight_run))
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


# -- Child processes of training scripts, killed at random instants and resumed to their end.


class ScriptFailedError(RuntimeError):
    """The script ended with an error; the message holds its last lines."""


class RunTooShortError(ConfigError):
    """The script ended before all kills were done."""


class Uninterrupted(NamedTuple):
    """Duration and length of an uninterrupted run."""

    seconds: float
    """From the first write to its directory to its end."""
    frames: int
    """Frames in its last checkpoint."""


class Script:
    """A training script in a process group, with its output in a file; a context manager kills it.

    ``command`` lacks ``--run-dir`` and ``--resume``; a run that was begun is resumed.
    """

    def __init__(
        self,
        command: Sequence[str],
        run: Path,
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        resume: list[str] = []
        if RunDir(run).holds_run:
            command, resume = without(command, ("--fork",)), ["--resume", "latest"]
        self._run, self._log = run, log
        self._before = _signature(run)
        with log.open("ab") as printed:
            self._process = subprocess.Popen(
                [*command, "--run-dir", str(run), *resume],
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for_first_write(self) -> float:
        """Wait until it has written to the run's directory, or ended; return the monotonic time."""
        self.wait_for(lambda: _signature(self._run) != self._before)
        return time.monotonic()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, or the script has ended."""
        while self._process.poll() is None and not condition():
            time.sleep(0.005)

    def wait(self) -> None:
        """Wait until it has ended; raise ScriptFailedError if the exit code is not 0."""
        code = self._process.wait()
        if code:
            how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
            text = self._log.read_bytes().decode(errors="replace")
            lines = text.rstrip().split("\n")[-20:]
            # A progress bar overwrites itself: keep its last state.
            last = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
            raise ScriptFailedError("\n".join([f"the script {how}; its last lines:", *last]))

    def kill(self) -> bool:
        """Kill it and its children; return whether it was still alive."""
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or is ending (macOS)
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait() == -signal.SIGKILL

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()


def run_killed(
    command: Sequence[str],
    run: Path,
    log: Path,
    kills: int,
    straight: Uninterrupted,
    rng: random.Random,
    *,
    shrink: float = 1.0,
) -> None:
    """Run a script to its end, killing and resuming it on the way.

    Kills are drawn uniformly over the first part ``shrink`` of the run and happen when as much time
    has passed as the uninterrupted run took to that point. The last one waits for a checkpoint.

    Raises:
        ScriptFailedError: If it fails.
        RunTooShortError: If it ended before all kills were done.
    """
    places = sorted(shrink * rng.random() for _ in range(kills))
    for number, place in enumerate(places, start=1):
        done = committed_frames(run) / straight.frames
        with Script(command, run, log) as script:
            started = script.wait_for_first_write()
            instant = started + straight.seconds * (place - done)
            script.wait_for(lambda instant=instant: time.monotonic() >= instant)  # type: ignore[misc]
            if number == kills:
                script.wait_for(lambda: committed_frames(run) > 0)
            if not script.kill():
                script.wait()
                raise RunTooShortError(
                    f"the run ended before it could be killed {plural(kills, 'time')}; give it "
                    "more frames."
                )
            after = time.monotonic() - started
        output.note(
            f"kill {number} of {kills}: {after:.2f} s after its first write, "
            f"{committed_frames(run):,} of {straight.frames:,} frames saved"
        )
    with Script(command, run, log) as script:
        script.wait()


def committed_frames(run: Path) -> int:
    """Return the frames in the latest checkpoint of a run; 0 if there is none."""
    checkpoints = list_checkpoints(RunDir(run).checkpoints).checkpoints
    return checkpoints[-1].manifest.frames if checkpoints else 0


def _signature(run: Path) -> dict[str, int]:
    """Return the modification time of each file of a run; it changes with every write."""
    with suppress(FileNotFoundError):  # there is no run yet; or a temporary file was renamed
        return {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    return {}


# -- Where a command trains to look at what comes out.


@contextmanager
def workplace(command: str, keep: Path | None, check: Callable[[Path], None]) -> Iterator[Path]:
    """Make the directory to train in, ``keep`` or a temporary one, which is removed after an error.

    ``check`` raises if ``keep`` cannot be used. In the block SIGTERM raises SystemExit, so that no
    script is left running.
    """

    def leave(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        check(keep)
    place = keep or Path(tempfile.mkdtemp(prefix=f"hooktrainer-{command}-"))
    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield place
    except BaseException:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
