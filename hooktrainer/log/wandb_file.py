"""Reading the `.wandb` files that W&B writes beside every run.

The format is LevelDB's log: after a header of 7 bytes, blocks of 32 KiB hold fragments of records,
each with a CRC (4 bytes), its length (2) and a type (1); a record is a protocol buffer.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = 1 << 15
_FILE_HEADER: Final = 7
_FRAGMENT: Final = struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def read_records(path: Path) -> Iterator[Any]:
    """Read the whole records of a file, as `wandb_internal_pb2.Record`; a torn end is left out."""
    from wandb.proto import wandb_internal_pb2

    make: Any = wandb_internal_pb2
    data = path.read_bytes()
    start, parts = _FILE_HEADER, []
    while start + _FRAGMENT.size <= len(data):
        if (left := _BLOCK - start % _BLOCK) < _FRAGMENT.size:
            start += left
            continue
        _, length, kind = _FRAGMENT.unpack_from(data, start)
        start += _FRAGMENT.size
        if not _FULL <= kind <= _LAST or start + length > len(data):
            return
        parts.append(data[start : start + length])
        start += length
        if kind in (_FULL, _LAST):
            yield make.Record.FromString(b"".join(parts))
            parts.clear()


def last_steps(paths: list[Path]) -> dict[str, int]:
    """The last value of the metric `step` with which each other metric appears in the files."""
    found: dict[str, int] = {}
    for path in paths:
        for record in read_records(path):
            if record.WhichOneof("record_type") != "history":
                continue
            step, names = None, set()
            for item in record.history.item:
                name = item.key or item.nested_key[0]
                if name == "step":
                    step = int(item.value_json)
                else:
                    names.add(name)
            if step is not None:
                found.update({name: max(step, found.get(name, step)) for name in names})
    return found


def wait_for_end(path: Path, timeout: float = 5.0) -> None:
    """Wait until a finished run's file holds its end: W&B's process writes it a little later."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if any(record.WhichOneof("record_type") == "exit" for record in read_records(path)):
            return
        time.sleep(0.01)
