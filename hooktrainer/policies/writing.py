"""Writing a saved policy: complete or absent, whatever happens meanwhile."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from ..store import fs
from ..store.housekeeping import move_away, sweep
from ..store.sealed import seal
from .policy_files import FACTS, LATEST, POLICY, SCHEMA, SEAL, PolicyContent, encode, read_facts


def write_policy(path: Path, facts: Mapping[str, Any], content: PolicyContent) -> None:
    """Write a saved policy that appears under ``path`` complete and durable, or not at all.

    Args:
        path: Where it shall be; a policy of this name is replaced.
        facts: Content of ``policy.json``; the schema and the files are added.
        content: The program and its tensors.

    Raises:
        CheckpointError: If it is too large.
        OSError: As the disk gives it.
    """
    data = encode(content)
    files = {POLICY: {"size": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)}}
    work = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    fs.make_directories(path.parent)
    try:
        fs.make_directory(work)
        fs.write_file(work / POLICY, data)
        fs.write_file(work / FACTS, seal(SEAL, {"schema": SCHEMA, **facts, "files": files}))
        fs.flush_to_disk(work / POLICY, work / FACTS, work)
        former = move_away(path, ".trash") if os.path.lexists(path) else None
        fs.rename(work, path)
    except BaseException:
        with suppress(OSError):
            fs.remove_tree(work)
        raise
    point_latest_at(path)
    fs.flush_to_disk(path.parent)
    if former is not None:
        sweep(path.parent, former.name)


def point_latest_at(path: Path) -> None:
    """Let ``latest`` lead to a saved policy, where the file system has links."""
    beside = path.with_name(f".tmp-{LATEST}-{secrets.token_hex(4)}")
    try:
        os.symlink(path.name, beside, target_is_directory=True)
        os.replace(beside, path.with_name(LATEST))
    except OSError:
        with suppress(OSError):
            os.unlink(beside)


def change_facts(path: Path, **fields: Any) -> None:
    """Change fields of ``policy.json``: a reader sees the old file or the new one."""
    facts = {**read_facts(path), **fields}
    with fs.replace_file(path / FACTS) as file:
        file.write(seal(SEAL, facts))
