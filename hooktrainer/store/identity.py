"""The identity of a run: one id, made when it begins, that everything it leaves carries."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..base.untrusted import parse_json, read_file

RUN_FILE: Final = "run.json"
"""Name of the file, in the directory of a run, that says how it stands."""

_ID: Final = re.compile(r"[0-9a-f]{16}")


def new_run_id() -> str:
    """An id that no other run has: 16 hexadecimal digits, drawn from the operating system."""
    return secrets.token_hex(8)


def id_in(state: Mapping[str, Any]) -> str | None:
    """The id in the content of a `run.json`; ``None`` if there is none, as of an older version."""
    found = state.get("run_id")
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


def parent_in(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the run of a `run.json` branched off: ``run_id``, ``path`` and ``frames``."""
    found = state.get("forked_from")
    if not isinstance(found, dict) or (run_id := id_in(found)) is None:
        return None
    path, frames = found.get("path"), found.get("frames")
    if not isinstance(path, str) or type(frames) is not int:
        return None
    return {"run_id": run_id, "path": path, "frames": frames}


def recorded_id(run: Path) -> str | None:
    """The id that the `run.json` of a directory holds; ``None`` if there is none to be read."""
    with suppress(OSError, ValueError):
        state = parse_json(read_file(run / RUN_FILE, run))
        if isinstance(state, dict):
            return id_in(state)
    return None
