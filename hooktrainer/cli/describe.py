"""`hooktrainer describe`: list the hooks of a run or of a training script."""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import Flag, ScriptArgs, shown_as
from .scripts import find_trainable, without_run_options
from .train import train_algorithm

if TYPE_CHECKING:
    from ..trainer import Trainer

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
    if len(path.parts) > 1 and path.suffix != ".py" and not path.exists():
        from ..store.lookup import no_run

        raise FileNotFoundError(no_run(path))
    table = _of_run(path) if path.is_dir() else _of_script(target, args)
    if json:
        output.print_json(table)
    else:
        _print(table)
    return 0


def _of_run(path: Path) -> list[dict[str, Any]]:
    run = RunDir(path)
    if not run.holds_run:
        raise FileNotFoundError(f"{path} holds no run: no run.json, no checkpoints.")
    return run.read_hooks()


def _of_script(target: str, args: Sequence[str]) -> list[dict[str, Any]]:
    trainable = find_trainable(target)
    words = without_run_options(args)
    tables: list[list[dict[str, Any]]] = []
    before = sys.argv, sys.path[:]
    with _no_training(tables), redirect_stdout(sys.stderr):
        try:
            if trainable.script is None:
                train_algorithm(trainable.name, words)
            else:
                sys.argv = [str(trainable.script), *words]
                sys.path.insert(0, str(trainable.script.parent))  # as if it were run directly
                runpy.run_path(str(trainable.script), run_name="__main__")
        except _AboutToTrainError:
            return tables[0]
        finally:
            sys.argv, sys.path[:] = before
    raise ConfigError(f"{target} ended without a call of Trainer.train().")


@contextmanager
def _no_training(tables: list[list[dict[str, Any]]]) -> Iterator[None]:
    """In the block, ``train()`` records the hooks and leaves; runs go to a temporary directory."""
    from ..trainer import Trainer

    train, prepare = Trainer.train, RunDir.prepare

    def describe_and_leave(trainer: Trainer) -> None:
        tables.append(trainer.registry.table())
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            trainer.shutdown()
        raise _AboutToTrainError

    with tempfile.TemporaryDirectory(prefix="hooktrainer-describe-") as place:

        def prepare_aside(path: Any = None, **options: Any) -> RunDir:
            return prepare(Path(place) / "run", **options)

        replaced: Any = Trainer, RunDir  # for as long as the script runs
        replaced[0].train, replaced[1].prepare = describe_and_leave, prepare_aside
        try:
            yield
        finally:
            replaced[0].train, replaced[1].prepare = train, prepare


def _print(table: Sequence[dict[str, Any]]) -> None:
    from ..loop.hook_points import HOOK_POINTS

    rows: list[Sequence[Any]] = []
    for point in HOOK_POINTS:
        place = f"{point} ({point.kind})"
        cells = [_cells(entry) for entry in table if entry["point"] == point]
        for number, row in enumerate(cells or [("-", "", "", "")]):
            rows.append(("" if number else place, *row))
    columns = ("hook point", "hook", "when", "priority", "saves")
    output.print_table(columns, rows, right=["priority"])


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    saves = f"{entry['module']}: {', '.join(entry['saves'])}" if entry["saves"] else ""
    return entry["hook"], entry["when"], f"{entry['priority']:g}", saves
