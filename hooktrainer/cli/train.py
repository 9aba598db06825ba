"""`hooktrainer train`: train a recipe or an algorithm by its name; `resume`: continue a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from ..base.child_program import run_program
from ..base.words import shell_word, without_password
from ..errors import CheckpointError, ConfigError, TakenError
from ..store.mirror import fetch, is_url
from ..store.run_dir import RunDir
from . import output, scripts
from .arguments import Directory, Flag, ScriptArgs, shown_as

Run = Annotated[str, Positional, shown_as("RUN|URL")]
Words = Annotated[tuple[str, ...], Positional, shown_as("[NAME [ARGS ...]]")]


def train(words: Words = (), /, *, json: Flag = False) -> int | Callable[[], None]:
    """Train by the name of a recipe or an algorithm.

    NAME is a recipe in recipes/ or one of hooktrainer's, the path of a training script, or an
    algorithm. Its options follow: hooktrainer train NAME --help lists them. Without a NAME, lists
    all names. --config FILE instead of a NAME repeats the run of that config.yaml, with the options
    that follow changed. A script, hook or environment of yours that FILE names is only run with
    --trust.

    Example: hooktrainer train ppo --env CartPole-v1 --total-frames 20000

    --launcher slurm submits a job to a cluster: --slurm-OPTION VALUE are options of sbatch, --jobs
    N divides the --seeds among N jobs, --dry-run prints the script.

    The exit code is the script's.

    Args:
        words: a recipe, a script or an algorithm, and its arguments
        json: print the list as JSON
    """
    if words:
        found, args = scripts.trainable_of(words)
        args = args[1:] if args[:1] == ["--"] else args
        if found.script is None:
            return partial(train_algorithm, found.name, args)
        return partial(run_program, [*found.command[1:], *args])
    records = [
        {
            "name": one.name,
            "kind": "recipe" if one.script else "algorithm",
            "family": one.family,
            "script": one.script,
            "summary": one.summary,
        }
        for one in scripts.by_family()
    ]
    columns = {"name": "name", "family": "family", "in short": "summary"}
    output.print_records(records, columns, json=json)
    if not json:
        print("hooktrainer train NAME --help lists the options of one.")
    return 0


def train_algorithm(name: str, options: Sequence[str]) -> None:
    """Train in this process with the algorithm of this name; the options are its fields.

    Raises SystemExit with code 2 for invalid options, 128 + n after signal n, 1 if a seed failed.
    """
    from ..loop.signals import ending_cleanly

    with ending_cleanly():  # during imports, too
        from .. import algorithms

        algorithms.get(name).main(options, f"hooktrainer train {name}")


def separate_arguments(words: list[str]) -> list[str]:
    """Put ``--`` before NAME, or its --config, so that the options are left to the recipe.

    Of ``branch`` it is put after the checkpoint.
    """
    if words[:1] == ["branch"] and "--" not in words:
        place = 1 + (words[1:2] == ["--trust"])
        if words[place:] and not words[place].startswith("-"):
            return [*words[: place + 1], "--", *words[place + 1 :]]
    if words[:1] != ["train"] or len(words) < 2:
        return words
    options = words[: words.index("--")] if "--" in words else words
    if not words[1].startswith("-") or any(word.split("=")[0] == "--config" for word in options):
        return ["train", "--", *words[1:]]
    return words


def resume(
    run: Run, args: ScriptArgs = (), /, *, into: Directory = None, trust: Flag = False
) -> Callable[[], None]:
    """Continue a run from its latest checkpoint.

    Runs the script that began it, in the directory where it was begun, with the same arguments. A
    finished run has nothing left to do, unless its length is extended:

    hooktrainer resume runs/a -- --total-frames 200000

    The URL of a run's mirror instead of RUN fetches its latest checkpoint first, to a directory of
    that name: hooktrainer resume s3://bucket/ant fetches to runs/ant.

    The command is read from the run's directory. If you did not begin the run on this machine, the
    command is printed, and only run with --trust.

    The exit code is the script's.

    Args:
        run: directory of the run, or the URL of its mirror
        args: after --, further arguments of the script; they come last
        into: with a URL, the directory in which to make that of the run; by default runs
        trust: run the command although the run was begun by another user, or on another machine
    """
    scripts.refuse_run_options(args)
    if into is not None and not is_url(run):
        raise ConfigError(f"--into {into}: {run} is no URL of a mirror; leave --into out.")
    place = _fetched(run, into or Path("runs")) if is_url(run) else Path(run)
    output.checkpoints_of(place)
    words = [*scripts.place_of(place), "--resume", "latest", *args]
    return scripts.run_again(place, words, trust=trust)


def _fetched(url: str, into: Path) -> Path:
    """Fetch a run from its mirror, and return its directory."""
    name, place = without_password(url), into / url.rstrip("/").rpartition("/")[2]
    run = RunDir(place)
    if any(run.checkpoints.glob("step_*")):
        raise TakenError(
            f"{place} has checkpoints already: continue from them with hooktrainer resume "
            f"{shell_word(place)}, or fetch to another directory with --into."
        )
    if (found := fetch(url, place)) is None:
        raise CheckpointError(f"{name} has no checkpoint: check the address.")
    output.note(f"fetched {found.path} from {name}")
    for file in (run.run_file, run.config_file):
        if not file.exists():
            raise CheckpointError(
                f"{name} has no {file.name}, so the command of the run is not known. Start that "
                f"yourself, with --run-dir {shell_word(place)} --resume latest."
            )
    return place
