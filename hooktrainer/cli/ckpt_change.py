"""`hooktrainer ckpt prune|rollback|export`: delete checkpoints, go back to one, export one."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction

from ..base.words import listed, plural
from ..errors import ConfigError
from ..store import Best, EveryFrames, EveryHours, Last, MaxBytes, Retention
from . import output
from .arguments import CheckpointSpec, Flag, OptionalCount, RunPath, shown_as

if TYPE_CHECKING:
    from ..store import Checkpoint, CheckpointManager

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
    from ..store import list_checkpoints
    from ..store.stored import surplus
    from .ckpt_change import parse_policy
    from .output import checkpoints_of, recorded_best

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
    from ..store import list_checkpoints
    from .output import open_checkpoint

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
    """Open the manager of a run's checkpoints, which blocks training while it is open."""
    from ..errors import CheckpointError
    from ..store import CheckpointManager, lock

    try:
        lock.RunLock(directory).release()
    except CheckpointError:
        raise CheckpointError(
            f"{directory} is in use by a live run ({lock.holder(directory)}): end that first."
        ) from None
    return CheckpointManager(directory, keep=keep)


# -- `hooktrainer ckpt export`: a checkpoint for another trainer.

NewFile = Annotated[Path, Positional, shown_as("OUT")]


def export(
    checkpoint: CheckpointSpec, out: NewFile, /, *, to: Literal["torchrl"] = "torchrl"
) -> int:
    """Write a checkpoint in the format of TorchRL's trainer, to continue there.

    Trainer.load_from_file of torchrl.trainers reads it, with CKPT_BACKEND=torch, the default there.
    Lists what the file does not hold.

    Example: hooktrainer ckpt export runs/a@best trainer.pt --to torchrl

    Args:
        checkpoint: the checkpoint, or the file of a trainer
        out: the file to write
        to: the trainer to write for
    """
    from ..store import load_file
    from ..torchrl.export import export as write
    from .output import open_checkpoint

    if Path(checkpoint).is_file():
        state = load_file(checkpoint)
    else:
        state = open_checkpoint(checkpoint).load()
    left = write(state, out)
    output.tell(f"{checkpoint} is in {out}, but for")
    for line in left:
        output.tell(f"  {line}")
    return 0


# -- Retention policies from the words of a command line.

_BEST = re.compile(r"(\d+):(.+?)(?::(max|min))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)
_EXPONENT = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_policy(
    *,
    latest: int | None = None,
    best: Sequence[str] = (),
    every_frames: int | None = None,
    every_hours: float | None = None,
    max_bytes: str | None = None,
) -> Retention:
    """Return the union of the requested retention policies, or raise `ConfigError`."""
    policies: list[Retention] = [parse_best(text) for text in best]
    if latest is not None:
        policies.append(Last(latest))
    if every_frames is not None:
        policies.append(EveryFrames(every_frames))
    if every_hours is not None:
        policies.append(EveryHours(every_hours))
    if max_bytes is not None:
        policies.append(MaxBytes(parse_size(max_bytes)))
    if not policies:
        raise ConfigError(
            "say what to keep, with one or more of --keep-last N, --keep-best N:METRIC, "
            "--every-frames N, --every-hours N, --max-bytes SIZE."
        )
    return reduce(or_, policies)


def parse_best(text: str) -> Best:
    """Parse ``N:METRIC``, ``N:METRIC:max`` or ``N:METRIC:min``, or raise `ConfigError`."""
    match = _BEST.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--keep-best {text}: write N:METRIC, or N:METRIC:min where less is better, such as "
            "3:eval/return."
        )
    return Best(int(match[1]), match[2], "min" if match[3] == "min" else "max")


def parse_size(text: str) -> int:
    """Parse a size in bytes: ``10GB`` is 10 * 1000**3, ``10GiB`` is 10 * 1024**3."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--max-bytes {text}: write a size such as 500MB, 10GB or 10GiB.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _EXPONENT[match[2].lower()])
