"""What someone can do to a checkpoint who knows its format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from hooktrainer.store import Checkpoint, FileRecord


def forge(checkpoint: Path) -> None:
    """Give every file that the manifest lists the size and the hash it has now."""
    manifest = Checkpoint.open(checkpoint).manifest
    records = {}
    for name in manifest.files:
        data = (checkpoint / name).read_bytes()
        records[name] = FileRecord(len(data), xxhash.xxh3_128_hexdigest(data))
    forged = dataclasses.replace(manifest, files=records)
    (checkpoint / "manifest.json").write_bytes(forged.encode())


def change(checkpoint: Path, name: str, edit: Callable[[Any], None]) -> None:
    """Edit the content of one JSON file of a checkpoint, and forge its hash."""
    content = json.loads((checkpoint / name).read_bytes())
    edit(content)
    (checkpoint / name).write_text(json.dumps(content))
    forge(checkpoint)
