"""``--launcher slurm``: a command of hooktrainer as a job of a cluster, not here and now."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..base.checks import check_rate
from ..base.text_file import write_atomically
from ..base.words import printable, shell_word, whole_number
from ..errors import ConfigError, TakenError
from . import output
from .scripts import value_of, without
from .slurm_script import SlurmScript

OPTION = "--launcher"
_PREFIX = "--slurm-"


@dataclass
class Launch:
    """What is said of launching.

    Attributes:
        words: The command line without that.
        launcher: What launches.
        jobs: How many jobs share the work.
        dry_run: Whether the script is printed, and not submitted.
        options: Options of sbatch.
    """

    words: list[str] = field(default_factory=list)
    launcher: str = ""
    jobs: int = 1
    dry_run: bool = False
    options: dict[str, str | None] = field(default_factory=dict)


def take_launch(words: Sequence[str]) -> Launch | None:
    """What a command line says of launching; ``None`` if it is run here.

    What follows a ``--`` is somebody else's.

    Raises:
        ConfigError: If that cannot be understood.
    """
    end = words.index("--") if "--" in words else len(words)
    if not any(word.split("=", 1)[0] == OPTION for word in words[:end]):
        return None
    found, rest = Launch(), list(words[:end])
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option == "--dry-run":
            found.dry_run = True
        elif option in (OPTION, "--jobs"):
            given = value if equals else rest.pop(0) if rest else ""
            if option == OPTION:
                found.launcher = given
            else:
                found.jobs = _count(given)
        elif option.startswith(_PREFIX):
            follows = not equals and bool(rest) and not rest[0].startswith("-")
            found.options[option[len(_PREFIX) :].replace("_", "-")] = (
                value if equals else rest.pop(0) if follows else None
            )
        else:
            found.words.append(f"{option}{equals}{value}")
    if found.launcher != "slurm":
        raise ConfigError(f"{OPTION} {found.launcher}: there is one, slurm.")
    found.words += words[end:]
    return found


def launch(given: Launch) -> int:
    """Submit a command, or print the script.

    Args:
        given: The command, and what is said of launching.

    Returns:
        The exit code.

    Raises:
        ConfigError: If it cannot be.
    """
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
    job = done.stdout.strip().partition(";")[0]  # what follows is the cluster
    output.tell(f"job {job}: {shell_word(file)}")
    output.say(
        f"see it by: squeue -j {job}; what it prints: {shell_word(script.output)}/{job}*.out"
    )
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
    """A run, or runs of several seeds, shared out among the tasks of an array."""
    from ..run.config_file import read_named, take_config
    from ..run.seeds import OWN, as_seeds, words_of_seeds
    from ..store.run_dir import RunDir
    from .recipes import trainable_of

    found, own = trainable_of(words)
    if found.script is None:  # not to be found out when the job's turn comes
        from .. import algorithms
        from ..algorithms.parse_options import parse

        parse(algorithms.get(found.name), own, f"hooktrainer train {found.name}")
    name = found.name
    file, _, said = take_config(own)
    saved = {} if file is None else read_named(file)
    place = Path(value_of(said, "--run-dir") or _new_place(name)).absolute()
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
                    f"{run} already holds a run: go on with --resume latest, or choose another "
                    "--run-dir."
                )
    kept = without(own, ("--run-dir", "--resume", "--fork", *(["--seeds"] if seeds else [])))
    begins = [word for option, value in (("--resume", resume), ("--fork", fork)) if value
              for word in (option, value)]  # fmt: skip
    shares = [] if seeds is None else _shares(seeds, given.jobs)
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


def _new_place(name: str) -> Path:
    return Path("runs") / name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}_slurm"


def _shares(seeds: Sequence[int], number: int) -> list[Sequence[int]]:
    """Seeds in so many parts, neighbours together; none of them is empty."""
    ends = [len(seeds) * part // number for part in range(number + 1)]
    return [seeds[a:b] for a, b in itertools.pairwise(ends) if a < b]


def _grace(words: Sequence[str], saved: Any = None) -> float:
    from ..loop.signals import GRACE

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
