"""Argument types shared by the commands. Imports nothing heavy, because `--help` needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, UseAppendAction


def shown_as(metavar: str | None = None) -> Any:
    """Set the placeholder of an argument in help, without a hint at its default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunPath = Annotated[Path, Positional, shown_as("RUN")]
"""The directory of a run."""

SavedSpec = Annotated[str, Positional, shown_as("RUN[@WHICH]")]
"""A checkpoint or a saved policy: RUN (its latest), RUN@best, RUN@FRAMES, or its path."""

Places = Annotated[tuple[Path, ...], Positional, shown_as("[PLACE ...]")]
"""Runs, and directories with runs below."""

Directory = Annotated[Path | None, shown_as("DIR")]
"""A directory to write to, optional."""

ScriptArgs = Annotated[tuple[str, ...], Positional, shown_as("[-- ARGS ...]")]
"""The words after ``--``: arguments of a script."""

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, shown_as()]
"""A switch, off by default."""

Patterns = Annotated[UseAppendAction[tuple[str, ...]], shown_as("PATTERN")]
"""An option that may be given several times."""

OptionalRun = Annotated[Path, Positional, shown_as("[RUN]")]
"""The directory of one or several runs, with a default."""

OutFile = Annotated[Path, tyro.conf.arg(metavar="FILE", aliases=["-o"], help_behavior_hint="")]
"""A file to write."""

OptionalOutFile = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", aliases=["-o"], help_behavior_hint="")
]
"""A file to write, optional."""

Seed = Annotated[int, shown_as("SEED")]
"""A seed."""

OptionalSeed = Annotated[int | None, shown_as("SEED")]
"""A seed, optional."""

Count = Annotated[int, shown_as("N")]
"""A number of things."""

OptionalCount = Annotated[int | None, shown_as("N")]
"""A number of things, optional."""

Pixels = Annotated[int, shown_as("PIXELS")]
"""A size in pixels."""

Seconds = Annotated[float, shown_as("SECONDS")]
"""A duration in seconds."""
