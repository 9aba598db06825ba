"""Finding the runs below a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..base.words import nearest
from ..errors import ConfigError
from .identity import RUN_FILE
from .run_dir import RunDir


def find_runs(
    root: str | os.PathLike[str] = "runs",
    experiment: str | None = None,
    *,
    onerror: Callable[[Exception], object] | None = None,
) -> list[RunDir]:
    """Find the runs below a directory, the one started last at the end.

    Args:
        root: Where to look, at any depth.
        experiment: Only runs of this experiment.
        onerror: Called with the error of each ``run.json`` and each directory that cannot be read;
            it names the place. By default they are left out without a word.

    Returns:
        Every directory with a readable `run.json`.
    """
    found: list[tuple[str, str, RunDir]] = []
    for place, directories, files in os.walk(root, onerror=onerror):
        run = RunDir(place)
        if RUN_FILE not in files:
            continue
        own = (run.checkpoints.name, run.logs.name, "policies")
        directories[:] = [name for name in directories if name not in own]
        try:
            state = run.read()
        except (ConfigError, OSError) as error:
            if onerror is not None:
                onerror(error)
            continue
        if experiment in (None, state.get("experiment")):
            found.append((str(state.get("started", "")), str(run.path), run))
    return [run for _, _, run in sorted(found, key=lambda entry: entry[:2])]


SWEEP_FILE: Final = ".sweep"
"""Lies in the directory of a sweep."""


def sweep_of(run: RunDir, place: str | os.PathLike[str]) -> Path | None:
    """The sweep below a place that a run was trained for; ``None`` if there is none.

    Args:
        run: A run below the place.
        place: A directory. Of a sweep that it is, or that it is in, it holds the runs themselves.
    """
    inner = run.path.absolute().relative_to(Path(place).absolute()).parents
    around = (Path(place) / path for path in reversed(inner) if path != Path())
    return next((path for path in around if (path / SWEEP_FILE).exists()), None)


def no_run(path: Path, thing: str = "run") -> str:
    """The message for a run that is not there, with the directories whose names are nearest."""
    places = {
        found.name: found
        for parent in (Path("runs"), path.parent)
        if parent.is_dir()
        for found in sorted(parent.iterdir())
        if found.is_dir()
    }
    near = " or ".join(str(places[name]) for name in nearest(path.name, places))
    return f"there is no {thing} {path}." + (f" Did you mean {near}?" if near else "")
