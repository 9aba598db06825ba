"""The script that a Slurm job is: a command of hooktrainer, which is queued again if need be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from ..errors import ConfigError

MARGIN: Final = 30.0
"""Seconds from the end of ``--grace`` to the end of a job's time."""

OURS: Final = ("array", "signal", "requeue", "no-requeue", "wrap", "chdir", "open-mode")
"""Options of sbatch that the script gives itself."""


@dataclass(frozen=True)
class SlurmScript:
    """A job.

    Attributes:
        name: What the queue calls it.
        command: The command line, Python first.
        directory: Where it is run.
        output: Directory of what it prints.
        grace: Seconds from a signal to its end.
        options: Options of sbatch, by their long names; ``None`` for one without a value.
        tasks: For each task of an array further words of the command; none if it is no array.
        number: How many tasks the array has if all run the same command.
        begins: Further words, the first time.
        goes_on: Further words when the job was queued again.
        begun: A file that is there once ``goes_on`` can be said; ``None`` if it always can.
        runs: For each task the directories of its runs, whose checkpoints tell whether it gets on;
            none if that is not to be looked at.
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
        """Refuse what would end its line, or what a terminal would obey instead of showing it.

        Raises:
            ConfigError: If there is any.
        """
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
        """What gives ``runs`` the directories of the task's runs."""
        each = [f"runs=({shlex.join(map(str, runs))})" for runs in self.runs]
        if len(each) == 1:
            return each
        cases = [f"    {number}) {runs} ;;" for number, runs in enumerate(each)]
        return ['case "$SLURM_ARRAY_TASK_ID" in', *cases, "esac"]

    def _header(self) -> list[str]:
        """What sbatch reads.

        Raises:
            ConfigError: If an option is one that the script gives itself, or cannot be written.
        """
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
            "made. The run is told to end {lost} s before that (--grace and 30). Submit it again" \\
            "with more time (--slurm-time), or make its batches smaller." >&2
        exit 1
    else
        touch "$idle"
    fi"""

_BODY = """\
{looks}set -m  # the run is a process group of its own, and gets signals from here alone
stop() {{ [ -n "$stopping" ] || kill -TERM "$run"; stopping=yes; }}
trap 'again=yes; stop' USR1
trap stop TERM INT

{command} &
run=$!
while wait "$run"; kill -0 "$run" 2>/dev/null; do :; done  # a signal breaks a wait off
wait "$run"
code=$?
# Done it is with 0, failed with another code; negative where bash has lost it over a signal.
if [ -n "$again" ] && {{ [ "$code" -gt 128 ] || [ "$code" -lt 0 ]; }}; then
    task=${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}  # not all tasks of the array
    job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}$task{ends}
    scontrol requeue "$job"
fi
exit "$code"
"""
