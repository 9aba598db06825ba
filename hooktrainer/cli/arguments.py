"""Types of arguments that several commands share. Imports nothing heavy: `--help` needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The directory of a run."""

CheckpointSpec = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN[@WHICH]")]
"""A checkpoint: RUN (its latest), RUN@best, RUN@FRAMES, or the path of one."""

Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]
"""An option that may be given several times."""

ScriptArgs = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[-- ARGS ...]")
]
"""What follows ``--``: arguments of a script."""
