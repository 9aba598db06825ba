"""`hooktrainer ckpt prune|rollback` and `policies prune`: delete what was saved, or go back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tyro.conf import UseAppendAction

from ..base.words import listed
from ..errors import ConfigError
from ..store import (
    Best,
    EveryFrames,
    EveryHours,
    Last,
    MaxBytes,
    Retention,
    Spread,
    list_checkpoints,
)
from ..store.lookup import recorded_best
from ..store.stored import delete, surplus
from . import output
from .arguments import Flag, OptionalCount, RunPath, SavedSpec, shown_as
from .policies import read_policies

if TYPE_CHECKING:
    from ..store import Checkpoint

Hours = Annotated[float | None, shown_as("N")]
BestOf = Annotated[UseAppendAction[tuple[str, ...]], shown_as("N:METRIC[:min]")]
Size = Annotated[str | None, shown_as("SIZE")]
Fates = Sequence[dict[str, Any]]
"""A row for each saved state, whose ``fate`` is kept or what happens to it."""


def prune_checkpoints(
    run: RunPath,
    /,
    *,
    keep_last: OptionalCount = None,
    keep_best: BestOf = (),
    every_frames: OptionalCount = None,
    every_hours: Hours = None,
    max_bytes: Size = None,
    dry_run: Flag = False,
    yes: Flag = False,
    json: Flag = False,
) -> int:
    """Delete the checkpoints of a run that no given rule keeps.

    The latest and the best one always stay. A run that is being trained is refused.

    Example: hooktrainer ckpt prune runs/a --keep-last 5 --keep-best 3:eval/return

    Args:
        run: directory of the run
        keep_last: keep the last N
        keep_best: keep the best N by a metric; may be repeated
        every_frames: keep the first in every N frames
        every_hours: keep the first in every N hours
        max_bytes: keep the latest that fit together in a size such as 500MB, 10GB, 10GiB
        dry_run: only show what would be deleted
        yes: do not ask
        json: print JSON: a list with the fate of each checkpoint
    """
    keep = _union(
        [_best(text) for text in keep_best],
        last=keep_last,
        every_frames=every_frames,
        every_hours=every_hours,
        max_bytes=None if max_bytes is None else _bytes(max_bytes),
    )
    from ..store import CheckpointManager  # imports PyTorch

    directory = output.checkpoints_of(run)
    checkpoints = list_checkpoints(directory).checkpoints
    best = recorded_best(checkpoints[::-1])
    gone = surplus(checkpoints, keep, best)

    def opened() -> CheckpointManager:
        return CheckpointManager(directory, keep=keep | best if best else keep)

    def delete_them(manager: CheckpointManager) -> list[Path]:
        return [checkpoint.path for checkpoint in manager.prune()]

    fates = _fates(checkpoints, gone, "deleted")
    return _carry_out(fates, opened, delete_them, dry_run=dry_run, yes=yes, json=json)


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
    json: Flag = False,
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
        json: print JSON: a list with the fate of each policy
    """
    from ..policies.saved import METRIC

    best = [] if keep_best is None else [Best(keep_best, METRIC)]
    keep = _union(best, spread=spread, last=keep_last, every_frames=every_frames)
    policies, _ = read_policies(run)
    gone = [
        saved
        for saved in surplus(policies, keep, None)
        if keep_best is None or METRIC in saved.metrics
    ]
    fates = [
        {
            "path": saved.path,
            "frames": saved.frames,
            "return": saved.metrics.get(METRIC),
            "fate": "deleted" if saved in gone else "kept",
        }
        for saved in policies
    ]

    def delete_them(_: None) -> list[Path]:
        return [saved.path for saved in gone if not delete(saved.path)]

    return _carry_out(fates, nullcontext, delete_them, dry_run=dry_run, yes=yes, json=json)


def rollback(
    checkpoint: SavedSpec,
    /,
    *,
    discard: Flag = False,
    dry_run: Flag = False,
    yes: Flag = False,
    json: Flag = False,
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
        json: print JSON: a list with the fate of each checkpoint
    """
    from ..store import CheckpointManager  # imports PyTorch

    target = output.open_checkpoint(checkpoint)
    directory = target.path.parent
    checkpoints = list_checkpoints(directory).checkpoints
    later = [c for c in checkpoints if c.manifest.sequence > target.manifest.sequence]
    if not later and not json:
        frames = listed(c.manifest.frames for c in checkpoints[:-1]) or "none"
        output.line(f"{target.path} is the latest already; name one with RUN@FRAMES: {frames}.")
        return 0

    def opened() -> CheckpointManager:
        return CheckpointManager(directory)

    def go_back(manager: CheckpointManager) -> list[Path]:
        manager.rollback(target.path, discard=discard)
        return []

    fates = _fates(checkpoints, later, "deleted" if discard else "set aside")
    return _carry_out(fates, opened, go_back, dry_run=dry_run, yes=yes, json=json)


def _carry_out(
    fates: Fates,
    opened: Callable[[], AbstractContextManager[Any]],
    change: Callable[[Any], Collection[Path]],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> int:
    """Show the fates, ask, and change the files; ``change`` returns the paths that were left.

    What ``opened`` locks stays locked while it asks.
    """
    changed = [row["fate"] for row in fates if row["fate"] != "kept"]
    if not changed and not json:
        output.line(f"nothing to delete: all {len(fates)} stay.")
        return 0
    if dry_run or not changed:
        _print(fates, json)
        return 0
    with opened() as manager:
        if not json:
            _print(fates, json)
        if not yes and not sys.stdin.isatty():
            raise ConfigError("this is not a terminal: add --yes, or --dry-run to only look.")
        question = f"{len(changed)} of {len(fates)} will be {changed[0]}. Continue?"
        if not yes and not output.confirm(question):
            output.note("nothing was changed")
            return 1
        left = change(manager)
    for path in left:
        output.note(f"could not be deleted, or is being read: {path}")
    if json:
        _print([row | {"fate": "left"} if row["path"] in left else row for row in fates], json)
    else:
        output.line(f"{len(changed) - len(left)} of {len(fates)} {changed[0]}")
    return 1 if left else 0


def _fates(checkpoints: Sequence[Checkpoint], gone: Sequence[Checkpoint], fate: str) -> Fates:
    return [
        {
            "path": checkpoint.path,
            "frames": checkpoint.frames,
            "time": checkpoint.time,
            "bytes": checkpoint.manifest.nbytes,
            "fate": fate if checkpoint in gone else "kept",
        }
        for checkpoint in checkpoints
    ]


def _print(fates: Fates, json: bool) -> None:
    columns: dict[str, output.Column] = {
        "name": lambda row: row["path"].name,
        "frames": "frames",
        "saved": lambda row: output.when(row["time"]),
        "size": lambda row: output.size(row["bytes"]),
        "return": lambda row: "not played" if row["return"] is None else f"{row['return']:.1f}",
        "fate": lambda row: (output.good if row["fate"] == "kept" else output.bad)(row["fate"]),
    }
    for head, key in (("saved", "time"), ("size", "bytes"), ("return", "return")):
        if fates and key not in fates[0]:
            del columns[head]
    output.print_records(fates, columns, json=json)


# -- Retention rules from the words of a command line.

_RULES: Final[dict[str, Callable[[Any], Retention]]] = {
    "spread": Spread,
    "last": Last,
    "every_frames": EveryFrames,
    "every_hours": EveryHours,
    "max_bytes": MaxBytes,
}
_BEST = re.compile(r"(\d+):(.+?)(?::(max|min))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)


def _union(best: Sequence[Retention], **given: Any) -> Retention:
    rules = [*best, *(_RULES[name](n) for name, n in given.items() if n is not None)]
    if not rules:
        raise ConfigError("give one or more retention rules: --help lists them.")
    return reduce(or_, rules)


def _best(text: str) -> Best:
    match = _BEST.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--keep-best {text}: write N:METRIC, or N:METRIC:min where less is better, such as "
            "3:eval/return."
        )
    return Best(int(match[1]), match[2], "min" if match[3] == "min" else "max")


def _bytes(text: str) -> int:
    """Parse a size in bytes: ``10GB`` is 10 * 1000**3, ``10GiB`` is 10 * 1024**3."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--max-bytes {text}: write a size such as 500MB, 10GB or 10GiB.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))
