"""A file system of fsspec in memory that fails, stalls and lies, as servers do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import fsspec
import xxhash
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from hooktrainer.store import Manifest
from hooktrainer.store.stored import MANIFEST


class Faults:
    """What goes wrong from now on.

    Attributes:
        rate: The share of calls with a fault.
        injected: The faults so far, by kind.
        broken: Calls that fail whenever they are made; ``"*"`` for all.
        next: The lies of the next calls, by call.
        gate: Calls in ``stalled`` wait until it is open.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.rate = 0.0
        self.injected: dict[str, int] = {}
        self.broken: set[str] = set()
        self.stalled: set[str] = set()
        self.next: dict[str, list[str]] = {}
        self.gate = threading.Event()
        self.calls: list[str] = []
        self.stale: list[Any] = []  # an earlier listing
        self.random = random.Random(0)

    def before(self, call: str, *lies: str) -> str | None:
        """Fail or wait, or return the kind of lie to tell."""
        self.calls.append(call)
        if call in self.stalled:
            self.gate.wait()
        if {call, "*"} & self.broken:
            raise OSError(f"{call}: 503 Slow Down")
        if self.next.get(call):
            return self.next[call].pop()
        if self.random.random() >= self.rate:
            return None
        kind = self.random.choice(("error", "timeout", "cancelled", "stall", *lies))
        self.injected[kind] = self.injected.get(kind, 0) + 1
        if kind == "error":
            raise OSError(f"{call}: 500 Internal Server Error")
        if kind == "timeout":
            raise FSTimeoutError
        if kind == "cancelled":
            raise asyncio.CancelledError
        if kind == "stall":
            self.gate.wait(0.001)
        return kind


FAULTS = Faults()


class FaultyFileSystem(MemoryFileSystem):
    """``faulty://``: all instances have one store."""

    protocol = "faulty"
    store: dict[str, MemoryFile] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, str) and path.startswith("faulty://"):
            path = "memory://" + path.removeprefix("faulty://").rpartition("@")[2]
        return super()._strip_protocol(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        kind = FAULTS.before("ls", "stale")
        if kind == "stale" and FAULTS.stale and not detail:
            return FAULTS.stale
        found = super().ls(path, detail=detail, **kwargs)
        if not detail and (not FAULTS.stale or FAULTS.random.random() < 0.1):
            FAULTS.stale = found
        return found

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        FAULTS.before("makedirs")
        super().makedirs(path, exist_ok=exist_ok)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        self._write("put_file", rpath, lambda: super(FaultyFileSystem, self).put_file(lpath, rpath))

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        self._write("pipe_file", path, lambda: super(FaultyFileSystem, self).pipe_file(path, value))

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        def move() -> None:
            self.store[path2] = self.store.pop(path1)

        self._write("mv", path2, move)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        FAULTS.before("rm")
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def _write(self, call: str, path: str, write: Callable[[], None]) -> None:
        kind = FAULTS.before(call, "truncated", "torn")
        write()
        path = self._strip_protocol(path)
        data = self.store[path].getvalue()
        if kind is not None and kind != "stall":
            self.store[path] = MemoryFile(self, path, data[: len(data) // 2])
        if kind == "torn":
            raise OSError(f"{call}: connection reset by peer")

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, **kwargs)
        kind = FAULTS.before("open", "wrong bytes", "short")
        data = bytearray(super()._open(path, mode, **kwargs).getvalue())
        if kind == "wrong bytes" and data:
            data[FAULTS.random.randrange(len(data))] ^= 1 << FAULTS.random.randrange(8)
        elif kind == "short":
            del data[-1:]
        return MemoryFile(None, path, bytes(data))


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


def complete(root: str, name: str) -> bool:
    """Whether a checkpoint is in the store with its manifest and every file of that."""
    store = FaultyFileSystem.store
    place = f"/{root}/checkpoints/{name}"
    manifest = Manifest.decode(store[f"{place}/{MANIFEST}"].getvalue())
    there = {file: store[f"{place}/{file}"].getvalue() for file in manifest.files}
    return all(
        xxhash.xxh3_128_hexdigest(there[file]) == record.xxh3_128
        for file, record in manifest.files.items()
    )
