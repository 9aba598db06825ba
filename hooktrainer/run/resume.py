"""What ``--resume`` and ``--fork`` name, and whether a run may go on with the options given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..base.plain import to_yaml
from ..base.words import did_you_mean, which
from ..errors import CheckpointError, ConfigError
from ..store import find
from ..store.find_runs import find_runs
from ..store.lookup import run_of
from ..store.run_dir import RunDir
from .config import RunConfig
from .fields import Mark, marked


def directory_of(args: RunConfig, experiment: str) -> Path | None:
    """Find the directory of the run to make or to resume.

    Returns:
        The directory, or ``None`` for a new one of the usual name.

    Raises:
        CheckpointError: If there is no such run or checkpoint.
        ConfigError: If the options contradict each other.
    """
    given = None if args.run_dir is None else Path(args.run_dir)
    if args.fork is not None:
        if args.resume is not None:
            raise ConfigError(
                f"--fork {args.fork} begins a new run, and --resume {args.resume} goes on with "
                "one: give one of them."
            )
        find(args.fork)  # before anything is made
        return given
    if args.resume is None:
        return given
    if which(args.resume) is not None:
        place = given or _newest_run(experiment)
        if not RunDir(place).holds_run:
            raise CheckpointError(f"--resume {args.resume}: {place} holds no run.")
        if args.resume != "latest":
            find(args.resume, place)
        return place
    checkpoint = find(args.resume)[0]
    run = given or run_of(checkpoint)
    if run is None or not RunDir(run).holds_run:
        raise ConfigError(
            f"--resume {args.resume}: "
            + ("it was moved out of its run" if run is None else f"{run} holds no run")
            + f". Name its run with --run-dir, or begin a new one from it: --fork {checkpoint}"
        )
    return run


def _newest_run(experiment: str) -> Path:
    runs = find_runs("runs", experiment)
    if not runs:
        raise CheckpointError(
            f"there is no run of {experiment} below runs/ to resume; name one with --run-dir."
        )
    return runs[-1].path


def check_unchanged(
    args: RunConfig, config: Mapping[str, Any], saved: Mapping[str, Any], place: Path
) -> bool:
    """Refuse options that differ from those of the run that is resumed, unless each may.

    Args:
        args: The options, of which ``allow_change`` is heeded.
        config: All options of the run as it is to be, by name.
        saved: Those that the checkpoint was made with; none, if it does not say.
        place: The run's directory.

    Returns:
        Whether any differ that ``allow_change`` names.

    Raises:
        ConfigError: If others differ; it lists them all. If ``allow_change`` names no option.
    """
    free = marked(type(args), Mark.MEANS, Mark.ON_RESUME)
    before, now = yaml.safe_load(to_yaml(saved)), yaml.safe_load(to_yaml(config))
    names = (before.keys() | now.keys()) - free if before else set()
    allowed = {name.replace("-", "_") for name in args.allow_change}
    known = sorted({*before, *now, *free})
    for name in sorted(allowed.difference(known)):
        hint = did_you_mean(name, known).replace("_", "-")
        raise ConfigError(
            f"--allow-change {name.replace('_', '-')}: there is no such option.{hint}"
        )
    differing = {name for name in names if before.get(name) != now.get(name)}
    if refused := differing - allowed:
        lines = [f"  {k}: {before.get(k)!r} before, {now.get(k)!r} now" for k in sorted(refused)]
        flags = " ".join(f"--allow-change {k.replace('_', '-')}" for k in sorted(refused))
        raise ConfigError(
            f"{place} was run with other options:\n" + "\n".join(lines) + "\n"
            f"Give the old values, or accept the new ones: {flags}. Or leave this run as it is, "
            "and begin a new one from it with --fork in place of --resume."
        )
    return bool(differing)
