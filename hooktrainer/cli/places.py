"""Finding what RUN and CHECKPOINT on a command line stand for."""

from __future__ import annotations

from pathlib import Path

from ..store import Best, Checkpoint, find
from ..store.find_runs import no_run
from ..store.lookup import checkpoint_directory
from ..store.run_dir import RunDir
from ..store.stored import NAME


def checkpoints_of(run: Path) -> Path:
    """Return where a run keeps its checkpoints.

    Raises:
        FileNotFoundError: If there is no such run.
    """
    if not run.is_dir():
        raise FileNotFoundError(no_run(run))
    if not RunDir(run).holds_run and not any(NAME.fullmatch(path.name) for path in run.iterdir()):
        raise FileNotFoundError(f"{run} holds no run: no run.json, no checkpoints.")
    return checkpoint_directory(run)


def open_checkpoint(spec: str) -> Checkpoint:
    """Return the checkpoint that a word on the command line names.

    Raises:
        CheckpointError: If there is none, or its manifest is damaged.
    """
    return Checkpoint.open(find(spec)[0])


def recorded_best(checkpoints: list[Checkpoint]) -> Best | None:
    """Return what the run itself counts as its best checkpoint, if it does."""
    for checkpoint in reversed(checkpoints):
        if (best := checkpoint.manifest.best) is not None:
            return Best(1, best["metric"], "min" if best["mode"] == "min" else "max")
    return None
