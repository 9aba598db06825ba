"""`hooktrainer describe`: list the hooks of a run or of a training script."""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

from tyro.conf import Positional

from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, ScriptArgs, shown_as
from .scripts import RUN_OPTIONS, find_trainable, without
from .train import train_algorithm

Target = Annotated[str, Positional, shown_as("RUN|SCRIPT|NAME")]


class _AboutToTrainError(BaseException):
    """Leaves a script where it would begin to train."""


def describe(target: Target, args: ScriptArgs = (), /, *, json: Flag = False) -> int:
    """List the hooks of a run or of a training script.

    By hook point, in the order in which they run, with their cadences and their saved state. For a
    run, as recorded when it began. A script, a recipe or an algorithm is run up to its call of
    train(), with a temporary run directory; nothing is trained.

    Example: hooktrainer describe ppo -- --env CartPole-v1 --total-frames 20000

    Args:
        target: directory of a run, a training script, or the name of a recipe or algorithm
        args: after --, arguments of the script
        json: print JSON: a list with one object per hook and point
    """
    path = Path(target)
    is_run = path.is_dir() or (len(path.parts) > 1 and path.suffix != ".py" and not path.exists())
    table = output.open_run(path).read_hooks() if is_run else _of_script(target, args)
    if json:
        output.print_json(table)
        return 0
    from ..loop.hook_points import HOOK_POINTS

    rows: list[Sequence[Any]] = []
    for point in HOOK_POINTS:
        hooks = [entry for entry in table if entry["point"] == point]
        rows += [] if hooks else [(f"{point} ({point.kind})", "-", *[None] * 3)]
        for number, hook in enumerate(hooks):
            saves = f"{hook['module']}: {', '.join(hook['saves'])}" if hook["saves"] else ""
            place = "" if number else f"{point} ({point.kind})"
            rows.append((place, hook["hook"], hook["when"], hook["priority"], saves))
    output.print_table(("hook point", "hook", "when", "priority", "saves"), rows)
    return 0


def _of_script(target: str, args: Sequence[str]) -> list[dict[str, Any]]:
    """Run a script up to its call of ``train()``, with runs in a temporary directory."""
    trainable = find_trainable(target)
    from ..trainer import Trainer  # which imports PyTorch

    words = without(args, RUN_OPTIONS)
    own = [] if trainable.script is None else [str(trainable.script.parent)]
    create, tables = RunDir.create, list[list[dict[str, Any]]]()

    def describe_and_leave(trainer: Trainer) -> None:
        tables.append(trainer.registry.table())
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            trainer.shutdown()
        raise _AboutToTrainError

    with (
        tempfile.TemporaryDirectory(prefix="hooktrainer-describe-") as place,
        patch.object(Trainer, "train", describe_and_leave),
        patch.object(
            RunDir, "create", lambda path=None, **more: create(Path(place) / "run", **more)
        ),
        patch.object(sys, "argv", [str(trainable.script), *words]),
        patch.object(sys, "path", [*own, *sys.path]),
        redirect_stdout(sys.stderr),
        suppress(_AboutToTrainError),
    ):
        if trainable.script is None:
            train_algorithm(trainable.name, words)
        else:
            runpy.run_path(str(trainable.script), run_name="__main__")
    if not tables:
        raise ConfigError(f"{target} ended without a call of Trainer.train().")
    return tables[0]
