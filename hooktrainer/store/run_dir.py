"""`RunDir`: the directory of one run, its `config.yaml` and its `run.json`."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from ..base.checks import check_seed
from ..base.endings import ENDINGS
from ..base.fs import write_atomically
from ..base.plain import to_plain, to_yaml
from ..base.untrusted import (
    MAX_YAML,
    MalformedError,
    check_fields,
    parse_json,
    parse_yaml,
    read_file,
    refusing,
)
from ..errors import ConfigError, NotFoundError, TakenError
from .lock import is_alive, is_locked
from .provenance import RUN_FILE, id_in, new_run_id, parent_in, this_process


class RunDir:
    """The directory of a run.

    ```
    <run>/
      config.yaml      the options of the run
      run.json         the run's id, status, frames, metrics, command, …
      hooks.json       every hook by point, in run order: what `hooktrainer describe` shows
      metrics.csv      every metric, as rows step,name,value
      tensorboard/     event files
      checkpoints/     one directory per checkpoint
      policies/        one directory per saved policy, if requested
      trace.json       the times of phases and hooks, if requested
      profile/         the files of torch.profiler, if requested
    ```

    The constructor only names the directory; `create` makes it. Wherever a path is expected, a
    `RunDir` will do.

    Args:
        path: The directory.
        run_id: The id of the run in it; by default from its files.

    Attributes:
        path: The directory itself; the other attributes are places in it, as above.
    """

    def __init__(self, path: str | os.PathLike[str], *, run_id: str | None = None) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.run_file = self.path / RUN_FILE
        self.hooks_file = self.path / "hooks.json"
        self.metrics = self.path / "metrics.csv"
        self.logs = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.trace = self.path / "trace.json"
        self.profile = self.path / "profile"
        self._traces = (self.run_file, self.config_file, self.metrics, self.logs, self.checkpoints)
        self._run_id = run_id

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        experiment: str = "run",
        seed: int | None = None,
        root: str | os.PathLike[str] = "runs",
        resume: bool = False,
        begin: bool = True,
    ) -> RunDir:
        """Make the directory of a new run, or take up that of an old one.

        Args:
            path: The directory. By default `<root>/<experiment>/<timestamp>_seed<seed>`, with a
                number appended if another run has that name.
            experiment: What is run.
            seed: The run's seed.
            root: Where the default directories are made.
            resume: Continue the run that `path` holds.
            begin: Call `begin`, which writes `run.json`.

        Raises:
            TakenError: `path` holds a run already and `resume` is false. One that died before
                its first batch is no reason.
            NotFoundError: `resume` is true and `path` holds no run.
            ConfigError: `resume` is true, and the run has no id, or its `metrics.csv` is a link.
            ValueError: `resume` is true and there is no `path`, or `seed` is no seed.
        """
        if seed is not None:
            check_seed("seed", seed)
        if path is None and resume:
            raise ValueError("resume=True needs the path of the run to continue")
        run = cls(new_directory(Path(root) / experiment, seed) if path is None else path)
        if resume:
            run._check_resumable()
            run._run_id = run.run_id or new_run_id()  # it may have died before it had any
        else:
            run._run_id = new_run_id()
            if run.path.exists() and not run.path.is_dir():
                raise TakenError(f"{run.path} is a file; a run needs a directory")
            if run.holds_run and not run._died_at_start():
                state = run.read(strict=False) or {"status": "unknown"}
                raise TakenError(
                    f"{run.path} already holds a run (status: {state['status']} at "
                    f"{state.get('frames', 0)} frames). Continue it with --resume latest, choose "
                    "another --run-dir, or delete the directory."
                )
            run.path.mkdir(parents=True, exist_ok=True)
            run.run_file.unlink(missing_ok=True)  # of a run that died at its start
            run.forget_logs()
        if begin:
            run.begin(experiment=experiment, seed=seed)
        return run

    @property
    def run_id(self) -> str | None:
        """The run's id; where `run.json` cannot be read, that in its checkpoints.

        ``None`` if there is no run.
        """
        if self._run_id is not None:
            return self._run_id
        if state := self.read(strict=False):
            return id_in(state)
        if not self.checkpoints.is_dir():
            return None
        from . import list_checkpoints  # it imports torch

        return list_checkpoints(self.checkpoints).run_id

    @property
    def forked_from(self) -> dict[str, Any] | None:
        """Where it branched off: ``run_id``, ``path`` and ``frames``; ``None`` if it did not."""
        return parent_in(self.read(strict=False))

    def begin(
        self,
        *,
        experiment: str = "run",
        seed: int | None = None,
        forked_from: Mapping[str, Any] | None = None,
    ) -> None:
        """Write into `run.json` that the run is running from now on, in this process.

        Call it when no other process can be training here, as when the run's checkpoints are
        locked. An unreadable file (the power may have failed) is replaced; unfinished files of a
        killed process are deleted.

        Args:
            experiment: What is run.
            seed: The run's seed.
            forked_from: Where it branched off: ``run_id``, ``path`` and ``frames`` of a checkpoint.
        """
        run_id = self.run_id or new_run_id()
        for leftover in self.path.glob(".tmp-*"):
            with suppress(OSError):
                leftover.unlink()
        process = this_process()
        known = self.read(strict=False)
        if known:
            again = {"time": _now(), "command": process.pop("command")}
            fields: dict[str, Any] = {"resumed": [*known.get("resumed", []), again]}
        else:
            self.run_file.unlink(missing_ok=True)  # it cannot be read
            fields = {"experiment": experiment, "seed": seed, "started": _now()}
            fields |= {"frames": 0, "optim_steps": 0, "seconds": 0.0, "metrics": {}}
        if forked_from is not None:
            fields["forked_from"] = dict(forked_from)
        self.update(run_id=run_id, status="running", reason=None, **fields, **process)
        self._run_id = run_id

    def forget_logs(self) -> None:
        """Delete the logs of a start that saved no checkpoint, before it is repeated."""
        self.metrics.unlink(missing_ok=True)
        shutil.rmtree(self.logs, ignore_errors=True)

    def write_config(self, config: Any) -> None:
        """Write `config.yaml`.

        Args:
            config: A dataclass instance, a mapping or an object with attributes, nested or not.

        Raises:
            TypeError: `config` is none of these.
        """
        write_atomically(self.config_file, to_yaml(to_plain(config)))

    def read_config(self) -> dict[str, Any]:
        """Read `config.yaml`; empty if there is none.

        Raises:
            ConfigError: It is not YAML of plain values, or not a mapping.
        """
        try:
            return read_config(self.config_file, self.path)
        except FileNotFoundError:
            return {}

    def update(self, **fields: Any) -> None:
        """Change fields of `run.json`, all at once: a reader sees the old file or the new one.

        A change of status is flushed to the disk, which takes milliseconds; the rest is not.

        Args:
            **fields: `status` (one of `STATUSES`), `reason`, `frames`, `optim_steps`, `seconds`,
                and any others. `metrics` adds to the metrics that are there. Tensors and arrays
                become numbers and lists; NaN and infinities, which JSON lacks, the texts `nan`,
                `inf` and `-inf`, which Python's `float` reads.

        Raises:
            ValueError: An unknown `status`.
        """
        status = fields.get("status", "running")
        if status not in STATUSES:
            raise ValueError(f"status is one of {', '.join(STATUSES)}, not {status!r}")
        known, fresh = self.read(), finite(to_plain(fields))
        if "metrics" in fresh:
            fresh["metrics"] = {**known.get("metrics", {}), **fresh["metrics"]}
        content = {**known, **fresh, "updated": _now()}
        durable = content.get("status") != known.get("status")
        write_atomically(self.run_file, json.dumps(content, indent=2) + "\n", durable=durable)

    def read(self, *, strict: bool = True) -> dict[str, Any]:
        """Read `run.json`; empty if there is none.

        Args:
            strict: Whether a damaged one, as after the power failed, is refused; else it is empty.

        Raises:
            ConfigError: It is not JSON, or not what a run writes; so in `read_hooks`.
        """
        try:
            with refusing(self.run_file, ConfigError):
                content = parse_json(read_file(self.run_file, self.path))
                check_fields(content, RunState)
                return dict(content)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ConfigError:
            if strict:
                raise
            return {}

    def read_hooks(self) -> list[dict[str, Any]]:
        """Read `hooks.json`: what `Registry.table` returned when the run began.

        Raises:
            NotFoundError: There is none.
        """
        with refusing(self.hooks_file, ConfigError):
            try:
                content = parse_json(read_file(self.hooks_file, self.path), nan=True)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFoundError(
                    f"{self.path} has no hooks.json; describe the script that began it."
                ) from None
            if not isinstance(content, list):
                raise MalformedError("it holds no list of hooks")
            for entry in content:
                check_fields(entry, HookEntry)
            return content

    @property
    def holds_run(self) -> bool:
        """Whether a run has left anything here."""
        return any(place.exists() for place in self._traces)

    def _died_at_start(self) -> bool:
        """Whether a run died here before its first batch, as by an option that cannot work."""
        state = self.read(strict=False)
        if state.get("frames") or any(self.checkpoints.glob("step*")):
            return False
        if not state:  # it was made beforehand, perhaps as a link to another disk
            free = is_locked(self.checkpoints) is False or not any(self.checkpoints.glob("*"))
            return free and not any(place.exists() for place in self._traces[:-1])
        status = state.get("status")
        died = status == "running" and is_alive(self.checkpoints, state) is False
        return died or status == "failed"

    def _check_resumable(self) -> None:
        if not self.holds_run:
            there = "holds no run" if self.path.is_dir() else "does not exist"
            raise NotFoundError(f"cannot resume: {self.path} {there}")
        if self.read(strict=False) and self.run_id is None:
            raise ConfigError(f"cannot resume: {self.run_file} holds no id of a run.")
        if self.metrics.is_symlink():
            raise ConfigError(
                f"cannot resume: {self.metrics} is a link. Put the file itself in its place."
            )

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"


def new_directory(parent: Path, seed: int | None) -> Path:
    """Make the directory of a new run, ``<parent>/<timestamp>_seed<seed>``, and return it."""
    parent.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = stamp if seed is None else f"{stamp}_seed{seed}"
    path, number = parent / name, 1
    while True:
        try:
            path.mkdir()  # atomic: of two runs started at once, one gets the next number
            return path
        except FileExistsError:
            path, number = parent / f"{name}_{number + 1}", number + 1


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# -- The content of a run's files, read without trust.

STATUSES: Final = ("running", *ENDINGS)
"""The values of `status` in `run.json`."""


class RunState(TypedDict, total=False):
    """The fields of `run.json` that are read; there may be more."""

    status: Literal["running", "finished", "solved", "pruned", "stopped", "interrupted", "failed"]
    reason: str | None
    experiment: str | None
    seed: int | None
    frames: int
    total_frames: int | None
    unit: str
    mirrored_frames: int | None
    optim_steps: int
    seconds: float
    metrics: Mapping[str, float | str]
    started: str
    updated: str
    resumed: Sequence[Any]
    pid: int | None
    host: str | None
    script: str | None
    module: str | None
    argv: Sequence[str]
    cwd: str | None


@dataclass(frozen=True)
class HookEntry:
    """An entry of `hooks.json`; see `Registry.table`."""

    point: str
    kind: str
    hook: str
    when: str
    priority: float
    module: str | None
    saves: Sequence[str]


def read_config(file: Path, root: Path | None = None) -> dict[str, Any]:
    """Read a configuration.

    Args:
        file: Where it is.
        root: The directory that it may not lie outside of.

    Raises:
        ConfigError: If it is not YAML, or no mapping of names to values.
        FileNotFoundError: If there is no such file.
    """
    with refusing(file, ConfigError):
        content = parse_yaml(read_file(file, root, limit=4 * MAX_YAML).decode()) or {}
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            raise MalformedError("it holds no mapping from names to values")
        return content


def finite(value: Any) -> Any:
    """Values for JSON: NaN and infinities as `nan`, `inf` and `-inf`, dataclasses as mappings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return finite(value.tolist()) if hasattr(value, "tolist") else value
