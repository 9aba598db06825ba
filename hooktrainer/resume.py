"""What ``--resume`` names, and whether the run it names is the one that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .checkpoint import Checkpoint, find
from .checkpoint.find import run_of
from .errors import CheckpointError, ConfigError
from .loggers.hparams import to_plain, to_yaml
from .run_dir import RunDir, find_runs
from .run_options import FREE_ON_RESUME, RunArgs
from .words import which


def resolve(args: RunArgs, experiment: str) -> Path | None:
    """Find the directory of the run to make or to resume.

    Returns:
        The directory, or ``None`` for a new one of the usual name.

    Raises:
        CheckpointError: If there is no such run or checkpoint.
        ConfigError: If the options contradict each other.
    """
    if args.resume is None:
        return args.run_dir
    if which(args.resume) is not None:
        place = args.run_dir or _newest_run(experiment)
        if not RunDir(place).holds_run:
            raise CheckpointError(f"--resume {args.resume}: {place} holds no run.")
        if args.resume != "latest":
            find(args.resume, place)
        return place
    checkpoint = find(args.resume)[0]
    own = run_of(checkpoint)
    if own is None and args.run_dir is None:
        raise ConfigError(
            f"{checkpoint} was moved out of its run: say with --run-dir where to go on from it, in "
            "that run or a new one."
        )
    if own and args.run_dir and args.run_dir.resolve() != own.resolve():
        raise ConfigError(
            f"--resume {args.resume} is a checkpoint of {own}, but --run-dir is {args.run_dir}; "
            "leave out --run-dir."
        )
    return args.run_dir or own


def _newest_run(experiment: str) -> Path:
    runs = find_runs("runs", experiment)
    if not runs:
        raise CheckpointError(
            f"there is no run of {experiment} below runs/ to resume; name one with --run-dir."
        )
    return runs[-1].path


def _saved_config(resume: str, place: Path) -> Mapping[str, Any]:
    """The options of the run that is resumed; where it is no run yet, those in the checkpoint."""
    if RunDir(place).holds_run:
        return RunDir(place).read_config()
    config = Checkpoint.open(find(resume)[0]).manifest.config
    return dict(yaml.safe_load(to_yaml(to_plain(config))))


def check_unchanged(args: RunArgs, config: Mapping[str, Any], place: Path) -> None:
    """Refuse options that differ from those of the run that is resumed, unless each may.

    Args:
        args: The options, of which ``resume`` and ``allow_change`` are heeded.
        config: All options of the run as it is to be, by name.
        place: The run's directory.

    Raises:
        ConfigError: If they differ; it lists them all.
    """
    assert args.resume is not None
    saved = _saved_config(args.resume, place)
    now = yaml.safe_load(to_yaml(config))
    allowed = FREE_ON_RESUME | {name.replace("-", "_") for name in args.allow_change}
    changed = {k for k in saved.keys() | now.keys() if saved.get(k) != now.get(k)} - allowed
    if saved and changed:
        lines = [f"  {k}: {saved.get(k)!r} before, {now.get(k)!r} now" for k in sorted(changed)]
        flags = " ".join(f"--allow-change {k.replace('_', '-')}" for k in sorted(changed))
        raise ConfigError(
            f"{place} was run with other options:\n" + "\n".join(lines) + "\n"
            f"Give the old values, or accept the new ones: {flags}"
        )
