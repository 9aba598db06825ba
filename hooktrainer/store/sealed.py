"""JSON files with a checksum of their own, so that a change of any byte is found."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import xxhash

from ..base.untrusted import MalformedError, parse_json
from ..errors import DamagedCheckpointError


def seal(name: str, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file: the content under a name, behind its checksum.

    It is JSON, with one entry a line.

    Args:
        name: What the content is called.
        content: Plain data.

    Raises:
        TypeError: If it is none.
    """
    # Indented by json.dumps(indent=...), it would take several times as long.
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    text = f"{{\n{lines}\n}}".encode()
    return b'{"xxh3_128": "%s",\n"%s": %s}\n' % (_hash(text), name.encode(), text)


def unseal(name: str, data: bytes) -> dict[str, Any]:
    """Return the content of a file that `seal` made.

    The checksum finds damage; whoever made the file may have written anything under it.

    Raises:
        DamagedCheckpointError: If a byte of it changed, or it is no JSON object; says what the
            file does, without naming it.
    """
    sealed = re.fullmatch(
        rb'\{"xxh3_128": "([0-9a-f]{32})",\n"%s": (.*)\}\n' % re.escape(name.encode()),
        data,
        re.DOTALL,
    )
    if sealed is None or _hash(sealed[2]) != sealed[1]:
        raise DamagedCheckpointError("does not match its own hash")
    try:
        content = parse_json(sealed[2], nan=True)
    except MalformedError as error:
        raise DamagedCheckpointError(f"is not JSON: {error!s:.100}") from None
    if not isinstance(content, dict):
        raise DamagedCheckpointError("holds no JSON object")
    return content


def _hash(text: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(text).encode()
