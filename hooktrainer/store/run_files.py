"""What stands in the files of a run, and reading it without trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from ..base.endings import ENDINGS
from ..base.untrusted import (
    MAX_YAML,
    MalformedError,
    check_fields,
    parse_json,
    parse_yaml,
    read_file,
    refusing,
)
from ..errors import ConfigError, NotFoundError

STATUSES: Final = ("running", *ENDINGS)
"""What `status` in `run.json` can be."""


class RunState(TypedDict, total=False):
    """The fields of `run.json` that are read; there may be more."""

    status: Literal["running", "finished", "solved", "pruned", "stopped", "interrupted", "failed"]
    reason: str | None
    experiment: str | None
    seed: int | None
    frames: int
    total_frames: int | None
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


def read_state(file: Path, root: Path) -> dict[str, Any]:
    """Read a `run.json`; empty if there is none.

    Args:
        file: Where it is.
        root: The directory that it may not lie outside of.

    Raises:
        ConfigError: If it is not JSON, or not what a run writes.
    """
    with refusing(file, ConfigError):
        try:
            content = parse_json(read_file(file, root))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        check_fields(content, RunState)
        return dict(content)


def read_hooks(file: Path, root: Path) -> list[dict[str, Any]]:
    """Read a `hooks.json`.

    Args:
        file: Where it is.
        root: The directory that it may not lie outside of.

    Raises:
        ConfigError: If it is not JSON, or not what a run writes.
        NotFoundError: If there is none.
    """
    with refusing(file, ConfigError):
        try:
            content = parse_json(read_file(file, root))
        except FileNotFoundError:
            raise NotFoundError(
                f"{root} has no {file.name}; describe the script that began it."
            ) from None
        if not isinstance(content, list):
            raise MalformedError("it holds no list of hooks")
        for entry in content:
            check_fields(entry, HookEntry)
        return content


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
    """Plain values with NaN and infinities, which JSON lacks, as `nan`, `inf` and `-inf`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value
