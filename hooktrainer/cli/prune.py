"""`hooktrainer ckpt prune|rollback` and `policies prune`: delete what was saved, or go back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction

from ..base.words import did_you_mean, listed
from ..errors import ConfigError
from ..store import Best, EveryFrames, Last, Retention, Saved, Spread, list_checkpoints
from ..store.lookup import recorded_best
from ..store.stored import delete, surplus
from . import output
from .arguments import Flag, OptionalCount, RunPath, SavedSpec, shown_as
from .policies import read_policies

BestOf = Annotated[UseAppendAction[tuple[str, ...]], shown_as("N:METRIC[:min]")]


def prune_checkpoints(
    run: RunPath,
    /,
    *,
    keep_last: OptionalCount = None,
    keep_best: BestOf = (),
    every_frames: OptionalCount = None,
    dry_run: Flag = False,
    yes: Flag = False,
) -> int:
    """Delete the checkpoints of a run that no given rule keeps.

    The latest and the best one always stay. A run that is being trained is refused.

    Example: hooktrainer ckpt prune runs/a --keep-last 5 --keep-best 3:eval/return

    Args:
        run: directory of the run
        keep_last: keep the last N
        keep_best: keep the best N by a metric; may be repeated
        every_frames: keep the first in every N frames
        dry_run: only show what would be deleted
        yes: do not ask
    """
    keep = _union((Last, keep_last), (EveryFrames, every_frames), *((_best, b) for b in keep_best))
    from ..store import CheckpointManager  # imports PyTorch

    directory = output.checkpoints_of(run)
    checkpoints = list_checkpoints(directory).checkpoints
    known = {name for one in checkpoints for name in one.metrics}
    for metric in (_best(text).metric for text in keep_best):
        if metric not in known:
            near = did_you_mean(metric, known) or f" They have {listed(sorted(known)) or 'none'}."
            raise ConfigError(f"--keep-best {metric}: no checkpoint of {run} has it.{near}")
    best = recorded_best(checkpoints[::-1])
    return _carry_out(
        checkpoints,
        surplus(checkpoints, keep, best),
        "deleted",
        partial(CheckpointManager, directory, keep=keep | best if best else keep),
        lambda manager: [checkpoint.path for checkpoint in manager.prune()],
        dry_run=dry_run,
        yes=yes,
    )


def prune_policies(
    run: RunPath,
    /,
    *,
    spread: OptionalCount = None,
    keep_last: OptionalCount = None,
    keep_best: OptionalCount = None,
    every_frames: OptionalCount = None,
    dry_run: Flag = False,
    yes: Flag = False,
) -> int:
    """Delete the saved policies of a run that no given rule keeps; the latest always stays.

    Example: hooktrainer policies prune runs/a --spread 10 --keep-best 1

    Args:
        run: directory of the run
        spread: keep N, spread evenly over the run
        keep_last: keep the last N
        keep_best: keep the best N by their return, and those that were not evaluated yet
        every_frames: keep the first in every N frames
        dry_run: only show what would be deleted
        yes: do not ask
    """
    from ..policies.saved import METRIC

    best = partial(Best, metric=METRIC)
    rules = (Spread, spread), (Last, keep_last), (best, keep_best), (EveryFrames, every_frames)
    keep = _union(*rules)
    policies, _ = read_policies(run)
    gone = surplus(policies, keep, None)
    if keep_best is not None:
        gone = [saved for saved in gone if METRIC in saved.metrics]
    return _carry_out(
        policies,
        gone,
        "deleted",
        nullcontext,
        lambda _: [saved.path for saved in gone if not delete(saved.path)],
        dry_run=dry_run,
        yes=yes,
    )


def rollback(
    checkpoint: SavedSpec, /, *, discard: Flag = False, dry_run: Flag = False, yes: Flag = False
) -> int:
    """Go back to an earlier checkpoint of a run: make it the latest one.

    Later ones are set aside and can be named by their paths. Logs after the checkpoint are cut off
    when the run is resumed. A run that is being trained is refused.

    Example: hooktrainer ckpt rollback runs/a@51200

    Args:
        checkpoint: RUN@FRAMES, RUN@best, or the path of a checkpoint
        discard: delete the later ones instead of setting them aside
        dry_run: only show what would be removed
        yes: do not ask
    """
    from ..store import CheckpointManager  # imports PyTorch

    target = output.open_checkpoint(checkpoint)
    directory = target.path.parent
    checkpoints = list_checkpoints(directory).checkpoints
    later = [c for c in checkpoints if c.manifest.sequence > target.manifest.sequence]
    if not later:
        frames = listed(c.frames for c in checkpoints[:-1]) or "none"
        output.line(f"{target.path} is the latest already; name one with RUN@FRAMES: {frames}.")
        return 0

    def go_back(manager: CheckpointManager) -> list[Path]:
        manager.rollback(target.path, discard=discard)
        return []

    fate = "deleted" if discard else "set aside"
    opened = partial(CheckpointManager, directory)
    return _carry_out(checkpoints, later, fate, opened, go_back, dry_run=dry_run, yes=yes)


def _carry_out(
    saved: Sequence[Saved],
    gone: Collection[Saved],
    fate: str,
    opened: Callable[[], AbstractContextManager[Any]],
    change: Callable[[Any], Collection[Path]],
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Show what becomes of each, ask, and change the files; ``change`` returns what was left.

    What ``opened`` locks stays locked while it asks.
    """
    if not gone:
        output.line(f"nothing to delete: all {len(saved)} stay.")
        return 0
    with nullcontext() if dry_run else opened() as manager:
        columns = ("name", "frames", "saved", "size", "fate")
        rows = [
            (
                *(one.path.name, one.frames, output.when(one.time)),
                output.size(sum(one.sizes.values())),
                output.bad(fate) if one in gone else output.good("kept"),
            )
            for one in saved
        ]
        output.print_table(columns, rows)
        if dry_run:
            return 0
        if not yes and not sys.stdin.isatty():
            raise ConfigError("this is not a terminal: add --yes, or --dry-run to only look.")
        if not yes:
            question = f"{len(gone)} of {len(saved)} will be {fate}. Continue? [y/N] "
            print(question, end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                output.note("nothing was changed")
                return 1
        left = change(manager)
    for path in left:
        output.note(f"could not be deleted, or is being read: {path}")
    output.line(f"{len(gone) - len(left)} of {len(saved)} {fate}")
    return 1 if left else 0


# -- Retention rules from the words of a command line.


def _union(*rules: tuple[Callable[[Any], Retention], Any]) -> Retention:
    """Join the rules whose values are given."""
    given = [make(value) for make, value in rules if value is not None]
    if not given:
        raise ConfigError("give one or more retention rules: --help lists them.")
    return reduce(or_, given)


def _best(text: str) -> Best:
    match = re.fullmatch(r"(\d+):(.+?)(?::(max|min))?", text)
    if match is None:
        raise ConfigError(
            f"--keep-best {text}: write N:METRIC, or N:METRIC:min where less is better, such as "
            "3:eval/return."
        )
    return Best(int(match[1]), match[2], "min" if match[3] == "min" else "max")
