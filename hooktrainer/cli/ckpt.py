"""`hooktrainer ckpt list|show|verify|diff|export`: inspect checkpoints, or export one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional

from ..base.checks import check_count
from ..base.words import plural
from ..errors import DamagedCheckpointError
from ..store import Checkpoint, list_checkpoints
from ..store.lookup import Listing, recorded_best
from ..store.stored import MANIFEST
from . import output
from .arguments import Flag, Patterns, RunPath, SavedSpec, shown_as

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
    best = recorded_best(listing.checkpoints[::-1])
    ranked = best.ranked(listing.checkpoints) if best else []
    entries: list[dict[str, Any]] = [
        _entry(one)
        | {"latest": one is listing.checkpoints[-1], "best": bool(ranked) and one is ranked[0]}
        for one in listing.checkpoints
    ]
    entries += [
        {"state": "damaged", "path": path, "reason": reason}
        for path, reason in listing.damaged.items()
    ]
    entries += [_entry(checkpoint) | {"state": "foreign"} for checkpoint in listing.foreign]
    aside = (p for pattern in ("aside-*", "damaged-*") for p in directory.glob(pattern))
    entries += [{"state": "set aside", "path": path} for path in sorted(aside)]
    if not entries and not json:
        output.line(f"{run} has no checkpoint yet.")
        return 0
    columns: dict[str, output.Column] = {
        "checkpoint": lambda entry: entry["path"].name,
        str(output.open_run(run).read(strict=False).get("unit", "frames")): "frames",
        "optimizer steps": "optim_steps",
        "saved": lambda entry: output.when(entry["time"]) if "time" in entry else None,
        "back end": "backend",
        "size": lambda entry: output.size(entry["bytes"]) if "bytes" in entry else None,
        **({best.metric: lambda entry: entry.get("metrics", {}).get(best.metric)} if best else {}),
        "note": _note,
    }
    output.print_records(entries, columns, json=json)
    if not json:
        sizes = {name: n for one in listing.checkpoints for name, n in one.sizes.items()}
        output.line(
            f"{plural(len(listing.checkpoints), 'checkpoint')} in {directory}, "
            f"{output.size(sum(sizes.values()))} on the disk"
        )
    return 0


def _note(entry: dict[str, Any]) -> object:
    if entry["state"] == "damaged":
        return output.bad(f"damaged: {entry['reason']}")
    if entry["state"] == "foreign":
        return output.bad(f"of another run, {entry['run_id']}")
    notes = ", ".join(note for note in ("latest", "best") if entry.get(note))
    return notes if entry["state"] == "committed" else entry["state"]


def show(checkpoint: SavedSpec, /, *, json: Flag = False) -> int:
    """Show the contents of a checkpoint: counters, metrics, configuration, the size of each part.

    Args:
        checkpoint: RUN (its latest), RUN@best, RUN@FRAMES, or the path of a checkpoint
        json: print JSON: the manifest, and the parts
    """
    opened = output.open_checkpoint(checkpoint)
    manifest, parts = opened.manifest, _parts(opened)
    if json:
        output.print_json({**_entry(opened), **vars(manifest), "parts": parts})
        return 0
    parent = manifest.forked_from
    facts = {
        "path": opened.path,
        "run": manifest.run_id,
        "saved": output.when(manifest.time),
        "frames": manifest.frames,
        "optimizer steps": manifest.optim_steps,
        "back end": manifest.backend,
        "files": f"{len(manifest.files) + 1}, {output.size(manifest.nbytes)}",
        "versions": ", ".join(f"{name} {v}" for name, v in manifest.versions.items() if v),
        "commit": f"{manifest.git_commit or 'none'}{' and changes' if manifest.git_dirty else ''}",
        **({"forked from": f"{parent['path']}, run {parent['run_id']}"} if parent else {}),
    }
    output.print_table(("checkpoint", opened.path.name), facts.items())
    if manifest.metrics:
        output.print_table(("metric", "latest value"), sorted(manifest.metrics.items()))
    if manifest.config:
        options = [(name, str(value)) for name, value in manifest.config.items()]
        output.print_table(("option", "value"), options)
    rows = [(name, part["tensors"], output.size(part["bytes"])) for name, part in parts.items()]
    output.print_table(("part", "tensors", "bytes"), rows)
    return 0


def verify(run: RunPath, /, *, json: Flag = False) -> int:
    """Read every file of every checkpoint of a run, and compare it with its checksum.

    Lists damaged files and checkpoints of other runs; the exit code is 1 if there are any.
    `--resume latest` takes the newest intact checkpoint, but none of another run.

    Args:
        run: directory of the run, or of a checkpoint that was moved out of it
        json: print JSON: a list with one object per checkpoint
    """
    if (run / MANIFEST).is_file():
        listing = Listing([Checkpoint.open(run)], {})  # of any run
    else:
        listing = list_checkpoints(output.checkpoints_of(run))
    damage = dict(listing.damaged)
    for checkpoint in [*listing.checkpoints, *listing.foreign]:
        why = _damage(checkpoint)
        if checkpoint.path.exists():  # else the run it belongs to has deleted it meanwhile
            damage[checkpoint.path] = why
    foreign = {checkpoint.path: checkpoint.manifest.run_id for checkpoint in listing.foreign}
    entries = [
        {"path": path, "intact": not why, "damage": why or None, "foreign": foreign.get(path)}
        for path, why in sorted(damage.items())
    ]
    columns = {"checkpoint": lambda entry: entry["path"].name, "verdict": _verdict}
    output.print_records(entries, columns, json=json)
    damaged = sum(not entry["intact"] for entry in entries)
    if not json:
        others = f", {len(foreign)} of another run" if foreign else ""
        output.line(f"{damaged or 'none'} of {plural(len(entries), 'checkpoint')} damaged{others}")
    return 1 if damaged or foreign else 0


def _damage(checkpoint: Checkpoint) -> str:
    try:
        checkpoint.verify()
    except DamagedCheckpointError as error:
        return str(error).removeprefix(f"{checkpoint.path} is damaged: ")
    return ""


def _verdict(entry: dict[str, Any]) -> object:
    if entry["damage"]:
        return output.bad(entry["damage"])
    if entry["foreign"]:
        return output.bad(f"intact, but of another run, {entry['foreign']}")
    return output.good("intact")


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

    check_count("--limit", limit, least=0)
    states = [output.open_checkpoint(spec).load() for spec in (left, right)]
    if not clock:
        states = list(without_clock(*states))
    found = [d for d in compare_trees(*states) if not is_ignored(d.path, ignore)]
    if found or json:
        columns = {"path": "path", left: "left", right: "right"}
        output.print_records(found if json else found[: limit or None], columns, json=json)
    if not json:
        hidden = f", {len(found) - limit:,} not shown" if 0 < limit < len(found) else ""
        output.line(f"{plural(len(found), 'difference')}{hidden}" if found else "identical")
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
    from ..torchrl.checkpoint import export as write

    file = Path(checkpoint).is_file()
    state = load_file(checkpoint) if file else output.open_checkpoint(checkpoint).load()
    left = write(state, out)
    output.line(f"{checkpoint} is in {out}, but for")
    for line in left:
        output.line(f"  {line}")
    return 0


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    manifest = checkpoint.manifest
    names = ("run_id", "frames", "optim_steps", "time", "backend", "metrics")
    facts = {name: getattr(manifest, name) for name in names}
    return {"state": "committed", "path": checkpoint.path, "bytes": manifest.nbytes, **facts}


def _parts(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Count the tensors of each part and their bytes; only ``state.json`` is read."""
    skeleton, specs = checkpoint.describe()
    paths = {"state": ""}  # not a trainer's
    if isinstance(skeleton, dict) and isinstance(inner := skeleton.get("components"), dict):
        paths = {name: f"components/{name}/" for name in inner} | {"rng": "rng/"}
    sizes = {
        name: [spec.nbytes for key, spec in specs.items() if f"{key}/".startswith(path)]
        for name, path in paths.items()
    }
    return {name: {"tensors": len(own), "bytes": sum(own)} for name, own in sizes.items()}
