"""What someone can do to a sealed file who knows its format: a JSON object behind its hash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

FACTS, POLICY = "policy.json", "policy.safetensors"  # the files of a saved policy


def seal(name: str, content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content)
    digest = xxhash.xxh3_128_hexdigest(text.encode())
    return f'{{"xxh3_128": "{digest}",\n"{name}": {text}}}\n'.encode()


def read_facts(path: Path) -> dict[str, Any]:
    return json.loads((path / FACTS).read_bytes())["policy"]


def change_facts(path: Path, **fields: Any) -> None:
    (path / FACTS).write_bytes(seal("policy", read_facts(path) | fields))
