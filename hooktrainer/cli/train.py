"""`hooktrainer train`: trains by the name of a recipe or an algorithm."""

from __future__ import annotations

import itertools
import sys
from typing import Annotated

from tyro.conf import Positional

from . import output
from .arguments import Flag, shown_as

Words = Annotated[tuple[str, ...], Positional, shown_as("[NAME [ARGS ...]]")]


def train(words: Words = (), /, *, json: Flag = False) -> int:
    """Train by the name of a recipe or an algorithm.

    NAME is a recipe in recipes/ or one of hooktrainer's, the path of a training script, or an
    algorithm. What follows it is its own; its options are listed by: hooktrainer train NAME --help.
    Without a NAME, lists what there is. --config FILE in its place makes the run again whose
    config.yaml that is, with what follows changed. A script that FILE names, and an environment
    whose id imports a module, are only run with --trust.

    Example: hooktrainer train ppo --env CartPole-v1 --total-frames 20000

    --launcher slurm submits it as a job of a cluster: --slurm-OPTION VALUE are options of sbatch,
    --jobs N divides the --seeds among N jobs, --dry-run prints the script.

    The exit code is the script's.

    Args:
        words: a recipe, a script or an algorithm, and its arguments
        json: of the list: print JSON
    """
    from ..store.provenance import replace_process
    from . import scripts as recipes

    if words:
        found, args = recipes.trainable_of(words)
        if not words[0].endswith(".py"):  # of a script of the user's own nothing is known
            _check_loggers(args)
        command = [*found.command, *(args[1:] if args[:1] == ["--"] else args)]
        sys.stdout.flush()
        # The script takes the place of this process: signals, terminal and exit code are its own.
        replace_process(command)
    listed = [("recipe", one) for one in recipes.recipes()]
    listed += [("algorithm", one) for one in recipes.algorithms()]
    if json:
        output.print_json(
            [
                {"name": one.name, "kind": kind, "script": one.script, "summary": one.summary}
                for kind, one in listed
            ]
        )
        return 0
    output.print_table(
        ("name", "what", "in short"), [(one.name, kind, one.summary) for kind, one in listed]
    )
    print("hooktrainer train NAME --help lists the options of one.")
    return 0


def _check_loggers(words: list[str]) -> None:
    """Say at once what the recipe would say only after it has imported everything.

    Raises:
        ConfigError: A ``--logger`` that there is not, or whose package is not installed.
    """
    named = [value for option, value in itertools.pairwise(words) if option == "--logger"]
    named += [word.partition("=")[2] for word in words if word.startswith("--logger=")]
    if named:
        from ..log.factory import check_kinds  # it imports NumPy

        check_kinds(list(dict.fromkeys(named)))


def separate_arguments(words: list[str]) -> list[str]:
    """Put a ``--`` before NAME, or its --config, so that the options are left to the recipe.

    Args:
        words: The command line.
    """
    if words[:1] != ["train"] or len(words) < 2:
        return words
    options = words[: words.index("--")] if "--" in words else words
    if not words[1].startswith("-") or any(word.split("=")[0] == "--config" for word in options):
        return ["train", "--", *words[1:]]
    return words
