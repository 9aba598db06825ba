"""``--launcher slurm``: submit a command of hooktrainer as a Slurm job."""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ..base.checks import check_count, check_rate
from ..base.endings import GRACE
from ..base.fs import write_atomically
from ..base.words import shell_word, whole_number
from ..errors import ConfigError, TakenError
from ..run.seeds import OWN, as_seeds, words_of_seeds
from ..store.run_dir import RunDir
from . import output
from .scripts import RUN_OPTIONS, trainable_of, value_of, without

OPTION = "--launcher"
_PREFIX = "--slurm-"


def launch(words: Sequence[str]) -> int | None:
    """Submit the command of a command line, or print the script; return the exit code.

    Launch options come before ``--``; without ``--launcher`` the result is ``None``.
    """
    end = words.index("--") if "--" in words else len(words)
    if not any(word.split("=", 1)[0] == OPTION for word in words[:end]):
        return None
    rest, others, options = list(words[:end]), list[str](), dict[str, str | None]()
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if option not in (OPTION, "--jobs", "--dry-run") and not option.startswith(_PREFIX):
            others.append(word)
        elif equals or option == "--dry-run" or not rest or rest[0].startswith("-"):
            options[option] = value if equals else None
        else:
            options[option] = rest.pop(0)
    if options[OPTION] != "slurm":
        raise ConfigError(f"{OPTION} {options[OPTION] or ''}: the only launcher is slurm.")
    try:
        jobs = whole_number(options.get("--jobs", "1") or "")
    except ValueError as error:
        raise ConfigError(f"--jobs: {error}.") from None
    check_count("--jobs", jobs)
    sbatch = {
        name.removeprefix(_PREFIX).replace("_", "-"): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    words = [*others, *words[end:]]
    if not words or words[0].startswith("-"):
        raise ConfigError(f"{OPTION}: name the command first, such as: hooktrainer train ppo …")
    command, *rest = words
    if command == "train":
        job = _training(jobs, rest)
    else:
        place = Path(value_of(rest, "--run-dir") or "runs").absolute()
        grace = _grace(value_of(rest, "--grace"))
        again = [sys.executable, "-m", "hooktrainer", *words]
        job = Job(f"hooktrainer-{command}", again, place, grace, jobs)
    script, place = _script(job, sbatch), job.place / "slurm"
    if "--dry-run" in options:
        print(script, end="")
        return 0
    if shutil.which("sbatch") is None:
        raise ConfigError(
            f"{OPTION} slurm: there is no sbatch on this machine. Submit from a machine of the "
            "cluster; --dry-run prints the script."
        )
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{datetime.now():%Y-%m-%d_%H-%M-%S}.sh"
    write_atomically(file, script)
    done = subprocess.run(
        ["sbatch", "--parsable", str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError(f"sbatch refuses {file}: {done.stderr.strip()}")
    number = done.stdout.strip().partition(";")[0]  # the cluster's name may follow
    output.line(f"job {number}: {shell_word(file)}")
    output.note(f"status: squeue -j {number}; output: {shell_word(place)}/{number}*.out")
    return 0


@dataclass(frozen=True)
class Job:
    """A command for Slurm.

    Attributes:
        place: Directory of its runs, in which ``slurm/`` has its output.
        grace: Seconds that a run has to end after a signal.
        tasks: Number of tasks, which are an array if there are several.
        seeds: For each task the value of ``--seeds``; empty if all run the same.
        begins: Further words at the first start, which ``--resume latest`` replaces after a
            requeue; ``None`` if the command is repeated unchanged.
    """

    name: str
    command: Sequence[str]
    place: Path
    grace: float
    tasks: int
    seeds: Sequence[str] = ()
    begins: Sequence[str] | None = None


def _training(jobs: int, words: Sequence[str]) -> Job:
    """Return the job of a run, or of runs of several seeds divided among the tasks of an array."""
    from ..run.config import read_named, take_config

    found, own = trainable_of(words)
    name = found.name
    if found.script is None:  # report mistakes now, not when the job starts
        from .. import algorithms
        from ..algorithms.algorithm import parse

        parse(algorithms.get(name), own, f"hooktrainer train {name}")
    file, _, options = take_config(own)
    saved: Mapping[str, Any] = {} if file is None else read_named(file)
    new = f"runs/{name}/{datetime.now():%Y-%m-%d_%H-%M-%S}_slurm"
    place = Path(value_of(options, "--run-dir") or new).absolute()
    several = value_of(options, "--seeds") or saved.get("seeds")
    if several == OWN:
        seed = value_of(options, "--seed") or saved.get("seed")
        several = f"{seed}-{seed}"
    seeds = list(as_seeds(several) or ())
    if not seeds and jobs > 1:
        raise ConfigError(f"--jobs {jobs} divide the seeds of a run: give --seeds.")
    begins = list[str]()
    for option in ("--resume", "--fork"):
        if (value := value_of(options, option)) is not None:
            begins += [option, value]
    if seeds and "--fork" in begins:  # a seed that begins after a requeue would be no branch
        raise ConfigError(f"{OPTION}: --fork with --seeds {several} is not possible.")
    for run in [place / f"seed{seed}" for seed in seeds] or [place]:
        if "--resume" not in begins and RunDir(run).holds_run:
            raise TakenError(
                f"{run} already holds a run: resume it with --resume latest, or choose another "
                "--run-dir."
            )
    kept = without(own, (*RUN_OPTIONS, *(["--seeds"] if seeds else [])))
    ends = [len(seeds) * part // jobs for part in range(jobs + 1)]
    shares = [words_of_seeds(seeds[a:b]) for a, b in itertools.pairwise(ends) if a < b]
    command = [sys.executable, "-m", "hooktrainer", "train", str(found.script or name), *kept]
    command += ["--run-dir", str(place)]
    grace = _grace(value_of(options, "--grace") or saved.get("grace"))
    return Job(name, command, place, grace, len(shares), shares, begins)


def _grace(given: Any) -> float:
    try:
        return GRACE if given is None else check_rate("--grace", float(given))
    except (TypeError, ValueError):
        raise ConfigError(f"--grace {given}: give seconds.") from None


# -- The script that a Slurm job is: a command of hooktrainer, which is queued again if need be.

MARGIN: Final = 30.0
"""Seconds between the end of ``--grace`` and the end of a job's time."""


def _script(job: Job, given: Mapping[str, str | None]) -> str:
    command = [shlex.join(job.command)]
    lines = [*_header(job, given), "", _EXPLANATION, f"place={shlex.quote(str(job.place))}"]
    if job.seeds:
        lines += [f"tasks=({shlex.join(job.seeds)})", _RUNS_OF_SEEDS]
        command.append('--seeds "$seeds"')
    else:
        lines.append('runs=("$place")')
    if job.begins is not None:
        begun = "$place" if job.seeds else "$place/run.json"
        again = f'[ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e "{begun}" ]'
        lines += [f"how=({shlex.join(job.begins)})", f"{again} && how=(--resume latest)"]
        command.append('"${how[@]}"')
    body = _BODY.format(
        command=" ".join(command),
        trains="false" if job.begins is None else "true",
        lost=f"{job.grace + MARGIN:g}",
    )
    return "\n".join([*lines, body])


def _header(job: Job, given: Mapping[str, str | None]) -> list[str]:
    """Return the first lines; refuse options that the script sets, and control characters."""
    place = str(job.place).replace("%", "%%")
    own = {
        "open-mode": "append",
        "chdir": str(Path.cwd()),
        "requeue": None,
        "signal": f"B:USR1@{round(job.grace + MARGIN)}",
        "array": f"0-{job.tasks - 1}",
    }
    for name in {*own, "no-requeue"} & given.keys():
        raise ConfigError(f"{_PREFIX}{name}: the script gives that itself; --dry-run shows it.")
    if job.tasks <= 1:
        del own["array"]
    out = f"{place}/slurm/{'%A_%a' if job.tasks > 1 else '%j'}.out"
    options = {"job-name": job.name, "output": out, **own, **given}
    lines = [
        f"#SBATCH --{name}" + ("" if value is None else f"={shlex.quote(value)}")
        for name, value in options.items()
    ]
    for text in (*lines, *job.command):
        if not text.isprintable():
            raise ConfigError(f"{OPTION} slurm: {text!r} cannot stand in a script.")
    return ["#!/bin/bash", *lines]


_EXPLANATION = """\
# USR1 comes before the time is up: the run saves and ends, and the job is queued again. TERM, as by
# scancel, ends it for good; where it is a preemption, Slurm itself queues the job again.
"""
_RUNS_OF_SEEDS = """\
seeds=${tasks[${SLURM_ARRAY_TASK_ID:-0}]} runs=()
for part in ${seeds//,/ }; do
    for seed in $(seq "${part%-*}" "${part#*-}"); do runs+=("$place/seed$seed"); done
done"""
_BODY = """\
# Frames at which the task has checkpoints, however often.
made() {{
    find "${{runs[@]}}" -path '*/checkpoints/step_*' -prune 2>/dev/null |
        sed 's/-[0-9]*$//' | sort -u
}}
before=$(made)
set -m  # the run has its own process group and gets signals from this script only
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
    if {trains} && [ "$(made)" = "$before" ]; then
        echo "error: the time of this job was over before a new checkpoint was made. The run has" \
            "to end {lost} s before that (--grace and 30). Submit it again with more time" \
            "(--slurm-time), or make its batches smaller." >&2
        exit 1
    fi
    task=${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}  # not all tasks of the array
    scontrol requeue "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}$task"
fi
exit "$code"
"""
