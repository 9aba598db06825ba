"""Finding checkpoints: all of a run, the latest, the best, or one by frames or path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from ..base.words import listed, nearest, which
from ..errors import CheckpointError, ConfigError
from .provenance import RUN_FILE, id_in
from .retention import Best
from .run_dir import RunDir
from .stored import MANIFEST, NAME, Checkpoint

SUBDIRECTORY = "checkpoints"


@dataclass(frozen=True)
class Listing:
    """The checkpoints of a run, by their manifests and names."""

    checkpoints: list[Checkpoint]
    """In the order they were committed."""
    damaged: dict[Path, str]
    """Directories whose manifest cannot be trusted, and why."""
    foreign: list[Checkpoint] = field(default_factory=list)
    """Checkpoints of other runs in the directory."""
    run_id: str | None = None
    """The run of the directory; ``None`` if no file in it has the id."""


def list_checkpoints(
    directory: Path, known: Mapping[Path, Checkpoint] | None = None, run_id: str | None = None
) -> Listing:
    """List the checkpoints in a directory; only their manifests are read.

    A directory that is deleted meanwhile is left out.

    Args:
        directory: Where they are.
        known: Checkpoints by path, whose manifests need not be read again.
        run_id: The run of the directory; by default that of the ``run.json`` next to it or, if that
            cannot be read, of the checkpoint committed last.
    """
    known = known or {}
    checkpoints, damaged = [], {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if not NAME.fullmatch(path.name):
            continue
        try:
            checkpoints.append(known.get(path) or Checkpoint.open(path))
        except CheckpointError as error:
            if path.is_dir():
                damaged[path] = str(error)
    checkpoints.sort(key=lambda checkpoint: checkpoint.manifest.sequence)
    if run_id is None and directory.name == SUBDIRECTORY:
        with suppress(OSError):
            run_id = id_in(RunDir(directory.parent).read(strict=False))
    if run_id is None and checkpoints:
        run_id = checkpoints[-1].manifest.run_id
    listing = Listing([], damaged, [], run_id)
    for checkpoint in checkpoints:
        is_own = checkpoint.manifest.run_id == run_id
        (listing.checkpoints if is_own else listing.foreign).append(checkpoint)
    return listing


def checkpoint_directory(run: Path) -> Path:
    """Return where a run keeps its checkpoints; ``run`` may be that directory already."""
    inside = run / SUBDIRECTORY
    return inside if inside.is_dir() else run


def run_of(checkpoint: Path) -> Path | None:
    """Return the run whose checkpoint this is; ``None`` if it was moved out of its run.

    A run, its directory of checkpoints, and the checkpoint itself may each be a symbolic link.
    """
    for path in (checkpoint, checkpoint.absolute(), checkpoint.resolve()):
        if path.parent.name == SUBDIRECTORY:
            return path.parent.parent
    return None


def find(
    spec: str | Path,
    directory: Path | None = None,
    best: Best | None = None,
    run_id: str | None = None,
) -> list[Path]:
    """Return the checkpoints that a user's word may mean, the first choice first.

    There is more than one for ``latest`` and ``best`` only: the next stands in for one that turns
    out to be damaged.

    Args:
        spec: ``latest``, ``best``, a number of frames, the path of a checkpoint or of a run (its
            latest), or ``RUN@latest``, ``RUN@best``, ``RUN@FRAMES``.
        directory: The run, or its directory of checkpoints, that a word without a path is about.
        best: Selects the best; by default as recorded in the latest checkpoint.
        run_id: The run that ``directory`` is of, as for `list_checkpoints`. Other runs' checkpoints
            in it are meant by their paths alone.

    Raises:
        CheckpointError: If there is none; lists what there is.
    """
    word, where = which(str(spec)), directory
    if word is None:
        run_id = None  # it is about another directory
        run, at, last = str(spec).rpartition("@")
        path = Path(spec)
        if path.name in ("", ".."):
            path = path.resolve()
        if at and which(last) and not path.exists():
            word, where = which(last), Path(run)
        elif NAME.fullmatch(path.name) or (path / MANIFEST).exists():
            if not path.is_dir():
                raise CheckpointError(
                    f"There is no checkpoint {path}. {_what_there_is(path.parent)}"
                )
            return [path.absolute()]
        else:
            word, where = "latest", path
    assert word is not None
    if where is None:
        raise CheckpointError(f"{word!r} needs a run: give RUN@{word}.")
    if not where.is_dir():
        raise CheckpointError(no_run(where))
    inside = checkpoint_directory(where)
    return _find_in(list_checkpoints(inside, run_id=run_id), inside, word, best)


def _find_in(listing: Listing, directory: Path, word: str, best: Best | None) -> list[Path]:
    committed = listing.checkpoints[::-1]
    if word == "latest":
        found = [*listing.damaged, *(checkpoint.path for checkpoint in committed)]
    elif word == "best":
        metrics = {name for checkpoint in committed for name in checkpoint.metrics}
        there = f"their metrics are {listed(sorted(metrics), most=20) or 'none'}"
        best = best or recorded_best(committed)
        if best is None:
            raise CheckpointError(
                f"The checkpoints in {directory} do not record the metric of the best one; "
                f"{there}. Give one with Best(1, metric)."
            )
        found = [checkpoint.path for checkpoint in best.ranked(committed)]
        if not found and committed:
            raise CheckpointError(
                f"No checkpoint in {directory} has the metric {best.metric!r}; {there}."
            )
    else:
        names = [(c.path, c.frames) for c in committed]
        names += [(path, int(NAME.fullmatch(path.name)[1])) for path in listing.damaged]  # type: ignore[index]
        found = [path for path, frames in names if frames == int(word)][:1]
    if not found:
        raise CheckpointError(f"There is no checkpoint {word!r}. {_what_there_is(directory)}")
    return found


def recorded_best(committed: Sequence[Checkpoint]) -> Best | None:
    """Return the rule of the first checkpoint that records one."""
    recorded = next((c.manifest.best for c in committed if c.manifest.best), None)
    if recorded is None:
        return None
    return Best(1, recorded["metric"], cast(Literal["max", "min"], recorded["mode"]))


def _what_there_is(directory: Path) -> str:
    frames = [c.manifest.frames for c in list_checkpoints(directory).checkpoints]
    return f"{directory} has {'those at frames ' + listed(frames) if frames else 'none'}."


# -- Finding the runs below a directory.


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
    """The message for a run that is not there, with those next to it or in runs/ named likewise."""
    if path.exists():
        return f"{path} is no {thing}: give the path of one."
    directories = (one for parent in (Path("runs"), path.parent) for one in parent.glob("*/"))
    there = {one.name: str(one) for one in sorted(directories)}
    near = " or ".join(there[name] for name in nearest(path.name, there))
    return f"there is no {thing} {path}." + (f" Did you mean {near}?" if near else "")
