"""``--launcher slurm``: submit a command of hooktrainer as a Slurm job."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ..base.checks import check_rate
from ..base.endings import GRACE
from ..base.text_file import write_atomically
from ..base.words import printable, shell_word, whole_number
from ..errors import ConfigError, TakenError
from ..run.seeds import OWN, as_seeds, words_of_seeds
from ..store.run_dir import RunDir
from . import output
from .scripts import trainable_of, value_of, without

OPTION = "--launcher"
_PREFIX = "--slurm-"


@dataclass
class Launch:
    """The options of a launch, and the command line without them."""

    words: list[str] = field(default_factory=list)
    jobs: int = 1
    dry_run: bool = False
    options: dict[str, str | None] = field(default_factory=dict)


def take_launch(words: Sequence[str]) -> Launch | None:
    """Parse the launch options of a command line, up to ``--``; ``None`` if it runs here."""
    end = words.index("--") if "--" in words else len(words)
    if not any(word.split("=", 1)[0] == OPTION for word in words[:end]):
        return None
    found, rest, launcher = Launch(), list(words[:end]), ""
    while rest:
        word = rest.pop(0)
        option, equals, given = word.partition("=")
        value = given if equals else None
        if option == "--dry-run":
            found.dry_run = True
        elif option in (OPTION, "--jobs"):
            value = value if equals or not rest else rest.pop(0)
            if option == OPTION:
                launcher = value or ""
            else:
                found.jobs = _count(value or "")
        elif option.startswith(_PREFIX):
            if not equals and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            found.options[option[len(_PREFIX) :].replace("_", "-")] = value
        else:
            found.words.append(word)
    if launcher != "slurm":
        raise ConfigError(f"{OPTION} {launcher}: the only launcher is slurm.")
    found.words += words[end:]
    return found


def launch(given: Launch) -> int:
    """Submit a command, or print the script; return the exit code."""
    script = _script(given)
    if given.dry_run:
        print(script, end="")
        return 0
    if shutil.which("sbatch") is None:
        raise ConfigError(
            f"{OPTION} slurm: there is no sbatch on this machine. Submit from a machine of the "
            "cluster; --dry-run prints the script."
        )
    text = str(script)
    script.output.mkdir(parents=True, exist_ok=True)
    file = script.output / f"{datetime.now():%Y-%m-%d_%H-%M-%S}.sh"
    write_atomically(file, text)
    done = subprocess.run(
        ["sbatch", "--parsable", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(f"sbatch refuses {file}: {done.stderr.strip()}")
    job = done.stdout.strip().partition(";")[0]  # the cluster's name may follow
    output.line(f"job {job}: {shell_word(file)}")
    output.note(f"status: squeue -j {job}; output: {shell_word(script.output)}/{job}*.out")
    return 0


def _script(given: Launch) -> SlurmScript:
    if not given.words or given.words[0].startswith("-"):
        raise ConfigError(f"{OPTION}: name the command first, such as: hooktrainer train ppo …")
    command, *rest = given.words
    if command == "train":
        return _training(given, rest)
    place = value_of(rest, "--run-dir")
    return SlurmScript(
        name=f"hooktrainer-{command}",
        command=[sys.executable, "-m", "hooktrainer", *given.words],
        directory=Path.cwd(),
        output=(Path(place or "runs") / "slurm").absolute(),
        grace=_grace(rest),
        options=given.options,
        number=given.jobs,
    )


def _training(given: Launch, words: Sequence[str]) -> SlurmScript:
    """Make the script of a run, or of runs of several seeds divided among the tasks of an array."""
    from ..run.config import read_named, take_config

    found, own = trainable_of(words)
    if found.script is None:  # report mistakes now, not when the job starts
        from .. import algorithms
        from ..algorithms.algorithm import parse

        parse(algorithms.get(found.name), own, f"hooktrainer train {found.name}")
    name = found.name
    file, _, said = take_config(own)
    saved = {} if file is None else read_named(file)
    new = f"runs/{name}/{datetime.now():%Y-%m-%d_%H-%M-%S}_slurm"
    place = Path(value_of(said, "--run-dir") or new).absolute()
    resume, fork = value_of(said, "--resume"), value_of(said, "--fork")
    several = value_of(said, "--seeds") or saved.get("seeds")
    if several == OWN:
        seed = value_of(said, "--seed") or saved.get("seed")
        several = f"{seed}-{seed}"
    seeds = None if several in (None, "None") else as_seeds(several)
    if seeds is None and given.jobs > 1:
        raise ConfigError(f"--jobs {given.jobs} divide the seeds of a run: give --seeds.")
    if seeds is not None and fork is not None:
        raise ConfigError(f"--fork {fork} with --seeds {several}: jobs do not begin branches so.")
    runs = [place] if seeds is None else [place / f"seed{seed}" for seed in seeds]
    if resume is None:
        for run in runs:
            if RunDir(run).holds_run:
                raise TakenError(
                    f"{run} already holds a run: resume it with --resume latest, or choose "
                    "another --run-dir."
                )
    kept = without(own, ("--run-dir", "--resume", "--fork", *(["--seeds"] if seeds else [])))
    begins = [word for option, value in (("--resume", resume), ("--fork", fork)) if value
              for word in (option, value)]  # fmt: skip
    ends = [len(seeds or ()) * part // given.jobs for part in range(given.jobs + 1)]
    shares = [seeds[a:b] for a, b in itertools.pairwise(ends) if seeds is not None and a < b]
    tasks = [words_of_seeds(one) for one in shares]
    trained = name if found.script is None else str(found.script)
    command = [sys.executable, "-m", "hooktrainer", "train", trained, *kept]
    if len(tasks) == 1:
        command, tasks = [*command, "--seeds", tasks[0]], []
    return SlurmScript(
        name=name,
        command=[*command, "--run-dir", str(place)],
        directory=Path.cwd(),
        output=place / "slurm",
        grace=_grace(said, saved.get("grace")),
        options=given.options,
        tasks=tasks,
        begins=begins,
        goes_on=["--resume", "latest"],
        begun=RunDir(place).run_file if seeds is None else None,
        runs=[[place / f"seed{seed}" for seed in one] for one in shares] or [[place]],
    )


def _grace(words: Sequence[str], saved: Any = None) -> float:
    given = value_of(words, "--grace") or saved
    try:
        return GRACE if given is None else check_rate("--grace", float(given))
    except (TypeError, ValueError):
        raise ConfigError(f"--grace {given}: give seconds.") from None


def _count(text: str) -> int:
    try:
        number = whole_number(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"--jobs {printable(text)}: give how many jobs share the work.")
    return number


# -- The script that a Slurm job is: a command of hooktrainer, which is queued again if need be.

MARGIN: Final = 30.0
"""Seconds between the end of ``--grace`` and the end of a job's time."""
OURS: Final = ("array", "signal", "requeue", "no-requeue", "wrap", "chdir", "open-mode")
"""Options of sbatch that the script sets itself."""


@dataclass(frozen=True)
class SlurmScript:
    """The batch script of a job, which is requeued at its time limit.

    Attributes:
        output: Directory of its output.
        grace: Seconds that a run has to end after a signal.
        options: Options of sbatch, by their long names; ``None`` for one without a value.
        tasks: For each task of an array the value of ``--seeds``; empty if it is no array.
        number: Number of tasks if all run the same command.
        begins: Further words at the first start.
        goes_on: Further words after a requeue.
        begun: A file that exists once ``goes_on`` is valid; ``None`` if it always is.
        runs: Directories of the runs of each task, to check their progress; empty for no check.
    """

    name: str
    command: Sequence[str]
    directory: Path
    output: Path
    grace: float
    options: Mapping[str, str | None] = field(default_factory=dict)
    tasks: Sequence[str] = ()
    number: int = 1
    begins: Sequence[str] = ()
    goes_on: Sequence[str] = ()
    begun: Path | None = None
    runs: Sequence[Sequence[Path]] = ()

    def __post_init__(self) -> None:
        """Refuse control characters and invalid names of options."""
        options = chain.from_iterable(self.options.items())
        words = (*self.command, *self.tasks, *self.begins, *self.goes_on)
        places = (self.directory, self.output, *chain.from_iterable(self.runs))
        for text in map(str, (self.name, *words, *places, *filter(None, options))):
            if not text.isprintable():
                raise ConfigError(
                    f"--launcher slurm: {text!r} cannot stand in a script: it has characters that "
                    "cannot be printed. Choose another."
                )
        for name in self.options:
            if re.fullmatch("[a-z][a-z0-9-]*", name) is None:
                raise ConfigError(f"--slurm-{name}: there is no such option of sbatch.")

    def __str__(self) -> str:
        lines = ["#!/bin/bash", *self._header(), "", _EXPLANATION, ""]
        words = [shlex.join(self.command)]
        if self.tasks:
            lines.append(f"tasks=({shlex.join(self.tasks)})")
            words.append('--seeds "${tasks[$SLURM_ARRAY_TASK_ID]}"')
        if self.begins or self.goes_on:
            again = '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]'
            if self.begun is not None:
                again += f" && [ -e {shlex.quote(str(self.begun))} ]"
            lines.append(f"how=({shlex.join(self.begins)})")
            lines.append(f"{again} && how=({shlex.join(self.goes_on)})")
            words.append('"${how[@]}"')
        looks, ends = "", ""
        if self.runs:
            looks = "\n".join([*self._runs(), _LOOK])
            ends = _END.format(
                idle=shlex.quote(str(self.output / "idle_")), lost=f"{self.grace + MARGIN:g}"
            )
        return "\n".join([*lines, _BODY.format(command=" ".join(words), looks=looks, ends=ends)])

    def _runs(self) -> list[str]:
        """Return the lines that set ``runs`` to the directories of the task's runs."""
        each = [f"runs=({shlex.join(map(str, runs))})" for runs in self.runs]
        if len(each) == 1:
            return each
        cases = [f"    {number}) {runs} ;;" for number, runs in enumerate(each)]
        return ['case "$SLURM_ARRAY_TASK_ID" in', *cases, "esac"]

    def _header(self) -> list[str]:
        """Return the ``#SBATCH`` lines; refuse options that the script sets itself."""
        count = max(len(self.tasks), self.number)
        what = "%A_%a" if count > 1 else "%j"
        output = str(self.output).replace("%", "%%")
        options: dict[str, str | None] = {
            "job-name": self.name,
            "output": f"{output}/{what}.out",
            "open-mode": "append",
            "chdir": str(self.directory),
            "requeue": None,
            "signal": f"B:USR1@{round(self.grace + MARGIN)}",
        }
        if count > 1:
            options["array"] = f"0-{count - 1}"
        for name, value in self.options.items():
            if name in OURS:
                raise ConfigError(
                    f"--slurm-{name}: the script gives that itself; --dry-run shows it."
                )
            options[name] = value
        return [
            f"#SBATCH --{name}" + ("" if value is None else f"={shlex.quote(value)}")
            for name, value in options.items()
        ]


_EXPLANATION = """\
# USR1 comes before the time is up: the run saves and ends, and the job is queued again. TERM, as by
# scancel, ends it for good; where it is a preemption, Slurm itself queues the job again."""
_LOOK = """\
# Frames at which there are checkpoints, however often.
made() {
    find "${runs[@]}" -path '*/checkpoints/step_*' -prune 2>/dev/null | sed 's/-[0-9]*$//' | sort -u
}
before=$(made)
"""
_END = """
    idle={idle}$job
    if [ "$(made)" != "$before" ]; then
        rm -f "$idle"
    elif [ -e "$idle" ]; then
        rm -f "$idle"
        echo "error: twice in a row the time of this job was over before a new checkpoint was" \\
            "made. The run has to end {lost} s before that (--grace and 30). Submit it again" \\
            "with more time (--slurm-time), or make its batches smaller." >&2
        exit 1
    else
        touch "$idle"
    fi"""
_BODY = """\
{looks}set -m  # the run has its own process group and gets signals from this script only
stop() {{ [ -n "$stopping" ] || kill -TERM "$run"; stopping=yes; }}
trap 'again=yes; stop' USR1
trap stop TERM INT

{command} &
run=$!
while wait "$run"; kill -0 "$run" 2>/dev/null; do :; done  # a signal interrupts wait
wait "$run"
code=$?
# 0: done; another code: failed; negative: bash has lost it because of a signal.
if [ -n "$again" ] && {{ [ "$code" -gt 128 ] || [ "$code" -lt 0 ]; }}; then
    task=${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}  # not all tasks of the array
    job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}$task{ends}
    scontrol requeue "$job"
fi
exit "$code"
"""
