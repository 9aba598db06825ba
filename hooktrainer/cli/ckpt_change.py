"""`hooktrainer ckpt prune|rollback`: deleting checkpoints, and going back to one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction

from ..base.words import listed, plural
from . import output
from .arguments import CheckpointSpec, Flag, OptionalCount, RunPath, shown_as

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..store import Checkpoint, CheckpointManager, Retention

Hours = Annotated[float | None, shown_as("N")]
BestOf = Annotated[UseAppendAction[tuple[str, ...]], shown_as("N:METRIC[:min]")]
Size = Annotated[str | None, shown_as("SIZE")]


def prune(
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

    The latest and the best one stay in any case. A run that is being trained is refused.

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
    from ..store import list_checkpoints
    from ..store.housekeeping import surplus
    from .keep import parse_policy
    from .places import checkpoints_of, recorded_best

    keep = parse_policy(
        latest=keep_last,
        best=keep_best,
        every_frames=every_frames,
        every_hours=every_hours,
        max_bytes=max_bytes,
    )
    directory = checkpoints_of(run)
    checkpoints = list_checkpoints(directory).checkpoints
    best = recorded_best(checkpoints)
    gone = surplus(checkpoints, keep, best)
    fates = _fates(checkpoints, gone, "deleted")
    if not gone and not json:
        output.tell(f"nothing to delete: all of {plural(len(checkpoints), 'checkpoint')} stay.")
        return 0
    if dry_run or not gone:
        _show(fates, json)
        return 0
    with _manager(directory, keep | best if best else keep) as manager:
        if not json:
            _show(fates)
        if not _agreed(f"Delete {plural(len(gone), 'checkpoint')}?", yes):
            return 1
        left = {checkpoint.path for checkpoint in manager.prune()}
    for path in left:
        output.say(f"could not be deleted, or is being read: {path}")
    if json:
        _show([row | {"fate": "left"} if row["path"] in left else row for row in fates], json)
    else:
        output.tell(f"{plural(len(gone) - len(left), 'checkpoint')} deleted")
    return 1 if left else 0


def rollback(
    checkpoint: CheckpointSpec,
    /,
    *,
    discard: Flag = False,
    dry_run: Flag = False,
    yes: Flag = False,
    json: Flag = False,
) -> int:
    """Go back to an earlier checkpoint of a run: make it the latest one.

    The later ones are set aside; they can be given by their paths. What the run logged since is cut
    off when it is resumed. A run that is being trained is refused.

    Example: hooktrainer ckpt rollback runs/a@51200

    Args:
        checkpoint: RUN@FRAMES, RUN@best, or the path of a checkpoint
        discard: delete the later ones instead of setting them aside
        dry_run: only show what would go
        yes: do not ask
        json: print JSON: a list with the fate of each checkpoint
    """
    from ..store import list_checkpoints
    from .places import open_checkpoint

    target = open_checkpoint(checkpoint)
    directory = target.path.parent
    checkpoints = list_checkpoints(directory).checkpoints
    later = [c for c in checkpoints if c.manifest.sequence > target.manifest.sequence]
    what = "deleted" if discard else "set aside"
    fates = _fates(checkpoints, later, what)
    if not later and not json:
        frames = listed(c.manifest.frames for c in checkpoints[:-1]) or "none"
        output.tell(f"{target.path} is the latest already; name one with RUN@FRAMES: {frames}.")
        return 0
    if dry_run or not later:
        _show(fates, json)
        return 0
    with _manager(directory) as manager:
        if not json:
            _show(fates)
        if not _agreed(f"Go back to {target.path.name}?", yes):
            return 1
        manager.rollback(target.path, discard=discard)
    if json:
        _show(fates, json)
    else:
        output.tell(f"{target.path} is the latest; {plural(len(later), 'later one')} {what}")
    return 0


def _fates(
    checkpoints: Sequence[Checkpoint], gone: Sequence[Checkpoint], fate: str
) -> list[dict[str, Any]]:
    return [
        {
            "path": checkpoint.path,
            "frames": checkpoint.manifest.frames,
            "time": checkpoint.manifest.time,
            "bytes": checkpoint.manifest.nbytes,
            "fate": fate if checkpoint in gone else "kept",
        }
        for checkpoint in checkpoints
    ]


def _show(fates: Sequence[dict[str, Any]], json: Flag = False) -> None:
    if json:
        output.print_json(fates)
        return
    rows = [
        (
            row["path"].name,
            f"{row['frames']:,}",
            output.when(row["time"]),
            output.size(row["bytes"]),
            (output.good if row["fate"] == "kept" else output.bad)(row["fate"]),
        )
        for row in fates
    ]
    columns = ("checkpoint", "frames", "saved", "size", "fate")
    output.print_table(columns, rows, right=["frames", "size"])


def _agreed(question: str, yes: Flag) -> bool:
    from ..errors import ConfigError

    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here: add --yes, or --dry-run to only look.")
    if output.confirm(question):
        return True
    output.say("nothing was changed")
    return False


def _manager(directory: Path, keep: Retention | None = None) -> CheckpointManager:
    """The manager of a run's checkpoints, which holds off training while it is open."""
    from ..errors import CheckpointError
    from ..store import CheckpointManager, lock

    try:
        lock.RunLock(directory).release()
    except CheckpointError:
        raise CheckpointError(
            f"{directory} is in use by a live run ({lock.holder(directory)}): end that first."
        ) from None
    return CheckpointManager(directory, keep=keep)
