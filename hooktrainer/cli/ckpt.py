"""`hooktrainer ckpt list|show|verify|diff|export`: inspect checkpoints, or export one."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional

from ..base.words import plural
from ..errors import DamagedCheckpointError
from ..store import Checkpoint, list_checkpoints
from ..store.lookup import Listing
from ..store.manifest import FILE
from . import output
from .arguments import Flag, Patterns, RunPath, SavedSpec, shown_as

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..store import TensorSpec

NewFile = Annotated[Path, Positional, shown_as("OUT")]


def list_(run: RunPath, /, *, json: Flag = False) -> int:
    """List the checkpoints of a run.

    Damaged ones are listed with what is wrong with their manifest; `ckpt verify` reads all files.
    Checkpoints of other runs are listed with the id of their run. Those that were set aside
    (damaged at a resume, or later than a rollback) come last and can be named by their path.

    Args:
        run: directory of the run
        json: print JSON: a list with one object per checkpoint
    """
    directory = output.checkpoints_of(run)
    listing = list_checkpoints(directory)
    best = output.recorded_best(listing.checkpoints)
    ranked = best.ranked(listing.checkpoints) if best else []
    entries = [_entry(checkpoint) for checkpoint in listing.checkpoints]
    for entry in entries:
        entry["latest"] = entry["path"] == listing.checkpoints[-1].path
        entry["best"] = bool(ranked) and entry["path"] == ranked[0].path
    entries += [
        {"state": "damaged", "path": path, "reason": reason}
        for path, reason in listing.damaged.items()
    ]
    entries += [_entry(checkpoint) | {"state": "foreign"} for checkpoint in listing.foreign]
    entries += [{"state": "set aside", "path": path} for path in _set_aside(directory)]
    if json:
        output.print_json(entries)
    elif entries:
        _print_list(entries, None if best is None else best.metric)
        output.line(
            f"{plural(len(listing.checkpoints), 'checkpoint')} in {directory}, "
            f"{output.size(_disk_usage(listing.checkpoints))} on the disk"
        )
    else:
        output.line(f"{run} has no checkpoint yet.")
    return 0


def show(checkpoint: SavedSpec, /, *, json: Flag = False) -> int:
    """Show the contents of a checkpoint: counters, metrics, configuration, the size of each part.

    Args:
        checkpoint: RUN (its latest), RUN@best, RUN@FRAMES, or the path of a checkpoint
        json: print JSON: the manifest, and the parts
    """
    opened = output.open_checkpoint(checkpoint)
    parts = _parts(opened)
    manifest = opened.manifest
    if json:
        output.print_json({**_entry(opened), **dataclasses.asdict(manifest), "parts": parts})
        return 0
    commit = f"{manifest.git_commit}{' and changes' if manifest.git_dirty else ''}"
    facts: dict[str, Any] = {
        "path": opened.path,
        "run": manifest.run_id,
        "saved": output.when(manifest.time),
        "frames": f"{manifest.frames:,}",
        "optimizer steps": f"{manifest.optim_steps:,}",
        "back end": manifest.backend,
        "files": f"{len(manifest.files) + 1}, {output.size(manifest.nbytes)}",
        "versions": ", ".join(f"{name} {v}" for name, v in manifest.versions.items() if v),
        "commit": commit if manifest.git_commit else "none",
    }
    if (parent := manifest.forked_from) is not None:
        facts["forked from"] = f"{parent['path']}, run {parent['run_id']}"
    output.print_table(("checkpoint", opened.path.name), facts.items())
    if manifest.metrics:
        metrics = sorted(manifest.metrics.items())
        rows = [(name, output.number(value)) for name, value in metrics]
        output.print_table(("metric", "latest value"), rows, right=["latest value"])
    if manifest.config:
        output.print_table(("option", "value"), manifest.config.items())
    output.print_table(
        ("part", "tensors", "bytes"),
        [(name, part["tensors"], output.size(part["bytes"])) for name, part in parts.items()],
        right=["tensors", "bytes"],
    )
    return 0


def verify(run: RunPath, /, *, json: Flag = False) -> int:
    """Read every file of every checkpoint of a run, and compare it with its checksum.

    Lists damaged files and checkpoints of other runs; the exit code is 1 if there are any.
    `--resume latest` takes the newest intact checkpoint, but none of another run.

    Args:
        run: directory of the run, or of a checkpoint that was moved out of it
        json: print JSON: a list with one object per checkpoint
    """
    if (run / FILE).is_file():
        listing = Listing([Checkpoint.open(run)], {})  # of any run
    else:
        listing = list_checkpoints(output.checkpoints_of(run))
    found: list[tuple[Path, str | None]] = list(listing.damaged.items())
    for checkpoint in [*listing.checkpoints, *listing.foreign]:
        try:
            found.append((checkpoint.path, _damage(checkpoint)))
        except FileNotFoundError:  # deleted meanwhile, by the run it belongs to
            continue
    found.sort(key=lambda result: result[0])
    damaged = sum(damage is not None for _, damage in found)
    foreign = {checkpoint.path: checkpoint.manifest.run_id for checkpoint in listing.foreign}
    code = 1 if damaged or foreign else 0
    if json:
        output.print_json(
            [
                {
                    "path": path,
                    "intact": damage is None,
                    "damage": damage,
                    "foreign": foreign.get(path),
                }
                for path, damage in found
            ]
        )
        return code
    rows = []
    for path, damage in found:
        verdict = output.bad(damage) if damage else output.good("intact")
        if not damage and path in foreign:
            verdict = output.bad(f"intact, but of another run, {foreign[path]}")
        rows.append((path.name, verdict))
    output.print_table(("checkpoint", "verdict"), rows)
    others = f", {len(foreign)} of another run" if foreign else ""
    output.line(f"{damaged or 'none'} of {plural(len(found), 'checkpoint')} damaged{others}")
    return code


def diff(
    left: SavedSpec,
    right: SavedSpec,
    /,
    *,
    ignore: Patterns = (),
    clock: Flag = False,
    limit: int = 20,
    json: Flag = False,
) -> int:
    """Compare the states in two checkpoints, bit for bit, except for times.

    Prints every place where they differ, with both values; the exit code is 1 if there are any.

    Example: hooktrainer ckpt diff runs/a@10240 runs/b@10240

    Args:
        left: RUN (its latest), RUN@best, RUN@FRAMES, or the path of a checkpoint
        right: the other one
        ignore: leave out matching paths, such as 'components/collector*'; may be repeated
        clock: compare times too, such as the metrics time/*
        limit: how many differences to print; 0 for all
        json: print JSON: a list of all differences
    """
    from ..store.diff import compare_trees
    from .compare import is_ignored, without_clock

    states = [output.open_checkpoint(spec).load() for spec in (left, right)]
    if not clock:
        states = list(without_clock(*states))
    found = [d for d in compare_trees(*states) if not is_ignored(d.path, ignore)]
    if json:
        output.print_json([dataclasses.asdict(difference) for difference in found])
    elif found:
        shown = found[: limit or None]
        rows = [(difference.path, difference.left, difference.right) for difference in shown]
        output.print_table(("path", left, right), rows)
        more = len(found) - len(shown)
        output.line(plural(len(found), "difference") + (f", {more:,} not shown" if more else ""))
    else:
        output.line("identical")
    return 1 if found else 0


def export(checkpoint: SavedSpec, out: NewFile, /, *, to: Literal["torchrl"] = "torchrl") -> int:
    """Write a checkpoint in the format of TorchRL's trainer, to continue there.

    Trainer.load_from_file of torchrl.trainers reads it, with CKPT_BACKEND=torch, the default there.
    Lists what the file does not hold.

    Example: hooktrainer ckpt export runs/a@best trainer.pt --to torchrl

    Args:
        checkpoint: the checkpoint, or the file of a trainer
        out: the file to write
        to: the trainer to write for
    """
    from ..store import load_file  # imports PyTorch
    from ..torchrl.export import export as write

    file = Path(checkpoint).is_file()
    state = load_file(checkpoint) if file else output.open_checkpoint(checkpoint).load()
    left = write(state, out)
    output.line(f"{checkpoint} is in {out}, but for")
    for line in left:
        output.line(f"  {line}")
    return 0


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    manifest = checkpoint.manifest
    return {
        "state": "committed",
        "path": checkpoint.path,
        "run_id": manifest.run_id,
        "frames": manifest.frames,
        "optim_steps": manifest.optim_steps,
        "time": manifest.time,
        "backend": manifest.backend,
        "bytes": manifest.nbytes,
        "metrics": manifest.metrics,
    }


def _set_aside(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.name.startswith(("aside-", "damaged-")))


def _print_list(entries: list[dict[str, Any]], metric: str | None) -> None:
    rows = []
    for entry in entries:
        name = entry["path"].name
        if entry["state"] != "committed":
            note: object = "set aside"
            if entry["state"] == "damaged":
                note = output.bad(f"damaged: {entry['reason']}")
            elif entry["state"] == "foreign":
                note = output.bad(f"of another run, {entry['run_id']}")
            rows.append((name, "", "", "", "", "", *([""] if metric else []), note))
            continue
        value = entry["metrics"].get(metric)
        rows.append(
            (
                name,
                f"{entry['frames']:,}",
                f"{entry['optim_steps']:,}",
                output.when(entry["time"]),
                entry["backend"],
                output.size(entry["bytes"]),
                *(["" if value is None else output.number(value)] if metric else []),
                ", ".join(note for note in ("latest", "best") if entry[note]),
            )
        )
    columns = ["checkpoint", "frames", "optimizer steps", "saved", "back end", "size"]
    columns += [metric] if metric else []
    output.print_table(
        [*columns, "note"],
        rows,
        right=["frames", "optimizer steps", "size", metric or ""],
        optional=["optimizer steps", "saved", "back end", "size"],
    )


def _disk_usage(checkpoints: list[Checkpoint]) -> int:
    """Count the bytes of all files, those that checkpoints share once."""
    seen = {}
    for checkpoint in checkpoints:
        for name in checkpoint.manifest.files:
            with suppress(OSError):  # deleted meanwhile, or damaged
                stat = (checkpoint.path / name).stat()
                seen[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(seen.values())


def _damage(checkpoint: Checkpoint) -> str | None:
    try:
        checkpoint.verify()
    except DamagedCheckpointError as error:
        return str(error).removeprefix(f"{checkpoint.path} is damaged: ")
    return None


def _parts(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Count the tensors of each part and their bytes; only ``state.json`` is read."""
    skeleton, specs = checkpoint.describe()
    if not isinstance(skeleton, dict) or next(iter(skeleton), "").startswith("$"):
        return {"state": _total(specs.values())}  # not a trainer's
    own = ("format", "versions", "total_frames", "ended")
    paths = {name: name for name in skeleton if name not in own}
    if isinstance(components := skeleton.get("components"), dict):
        del paths["components"]
        paths = {f"components/{name}": name for name in components} | paths
    return {
        name: _total(spec for key, spec in specs.items() if f"{key}/".startswith(f"{path}/"))
        for path, name in paths.items()
    }


def _total(specs: Iterable[TensorSpec]) -> dict[str, int]:
    sizes = [spec.nbytes for spec in specs]
    return {"tensors": len(sizes), "bytes": sum(sizes)}
