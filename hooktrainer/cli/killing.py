"""Child processes of training scripts, killed at random instants and resumed to their end."""

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
from dataclasses import dataclass
from pathlib import Path

from ..base.words import plural
from ..errors import ConfigError
from ..store import list_checkpoints
from ..store.run_dir import RunDir
from .output import note
from .scripts import without

_POLL_SECONDS = 0.005


class ScriptFailedError(RuntimeError):
    """The script ended with an error; the message holds its last lines."""


class RunTooShortError(ConfigError):
    """The script ended before all kills were done."""


@dataclass(frozen=True)
class Uninterrupted:
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
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--run-dir", str(run), *resume],
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
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
            time.sleep(_POLL_SECONDS)

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


def run_straight(command: Sequence[str], run: Path, log: Path) -> Uninterrupted:
    """Run a script to its end without interruption."""
    with Script(command, run, log) as script:
        started = script.wait_for_first_write()
        script.wait()
        return Uninterrupted(time.monotonic() - started, committed_frames(run))


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
        note(
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
