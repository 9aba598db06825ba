"""`hooktrainer ckpt export`: a checkpoint for another trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from . import output
from .arguments import CheckpointSpec, shown_as

NewFile = Annotated[Path, Positional, shown_as("OUT")]


def export(
    checkpoint: CheckpointSpec, out: NewFile, /, *, to: Literal["torchrl"] = "torchrl"
) -> int:
    """Write a checkpoint as TorchRL's trainer saves itself, to go on there.

    Trainer.load_from_file of torchrl.trainers reads it, with CKPT_BACKEND=torch, which is the
    default there. What is not in it is listed.

    Example: hooktrainer ckpt export runs/a@best trainer.pt --to torchrl

    Args:
        checkpoint: the checkpoint, or the file of a trainer
        out: the file to write
        to: the trainer it is for
    """
    from ..store import load_file
    from ..torchrl.export import export as write
    from .places import open_checkpoint

    if Path(checkpoint).is_file():
        state = load_file(checkpoint)
    else:
        state = open_checkpoint(checkpoint).load()
    left = write(state, out)
    output.tell(f"{checkpoint} is in {out}, but for")
    for line in left:
        output.tell(f"  {line}")
    return 0
