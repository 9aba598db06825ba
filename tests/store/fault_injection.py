"""A stand-in for ``os`` in `hooktrainer.base.fs` that fails, dies, or remembers what a power
loss would leave."""

from __future__ import annotations

import errno
import io
import os
import pathlib
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hooktrainer.base import fs

BACKENDS = ("torch", "torchsnapshot", "native")

FULL = bool(os.environ.get("HOOKTRAINER_FAULTS"))
"""Whether to run the large counts, with ``HOOKTRAINER_FAULTS=1``."""

CALLS = {
    "open", "write", "fsync", "rename", "replace", "link", "mkdir", "unlink", "rmdir",
}  # fmt: skip


class Crash(BaseException):
    """The process died here: nothing after it happens."""


class FaultyOS:
    """Passes calls on to `os` until one is to fail.

    Args:
        fail_at: The number of the call to fail, from 1; 0 for none.
        error: What it raises. After a `Crash`, every later call raises one too, and a ``write`` has
            written half.
        space: Bytes that can be written before the disk is full.
    """

    def __init__(
        self, fail_at: int = 0, error: BaseException | None = None, space: int | None = None
    ) -> None:
        self.count = 0
        self.failed: str | None = None  # the name of the call that failed
        self._fail_at = fail_at
        self._error = error or Crash()
        self._space = space
        self._dead = False
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in CALLS:
            return function
        return lambda *args, **kwargs: self._call(name, function, args, kwargs)

    def _call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        with self._lock:
            self.count += 1
            if self._dead:
                raise Crash
            if self.count == self._fail_at:
                self.failed = name
                if isinstance(self._error, Crash):
                    self._dead = True
                    if name == "write":
                        function(args[0], args[1][: len(args[1]) // 2])
                raise self._error
            if self._space is not None and name == "write":
                if len(args[1]) > self._space:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._space -= len(args[1])
            result = function(*args, **kwargs)
            self._done(name, args, result)
            return result

    def _done(self, name: str, args: Any, result: Any) -> None:
        """Called after each call that succeeded."""


class VolatileDisk(FaultyOS):
    """A disk that keeps nothing but what was flushed: the strictest reading of POSIX.

    The content of a file survives as of its last ``fsync``, and the names in a directory as of the
    directory's last ``fsync``.

    Args:
        root: The directory that is the disk.
        fail_at: The number of the call at which the power is lost.
        hasty: Whether deleted names are gone at once, which may be long before a rename is flushed.
    """

    def __init__(self, root: Path, fail_at: int = 0, hasty: bool = False) -> None:
        super().__init__(fail_at)
        self._hasty = hasty
        self._births: dict[int, int] = {}  # inode numbers are used again
        self._contents: dict[tuple[int, int], bytes] = {}
        self._names: dict[tuple[int, int], dict[str, tuple[tuple[int, int], bool]]] = {}
        self._root = self._identity(root.stat())

    def after_power_loss(self, target: Path) -> None:
        """Recreate in ``target`` what the disk would have."""
        self._rebuild(self._root, target)

    def _rebuild(self, directory: tuple[int, int], target: Path) -> None:
        target.mkdir()
        for name, (identity, is_directory) in self._names.get(directory, {}).items():
            if is_directory:
                self._rebuild(identity, target / name)
            else:
                (target / name).write_bytes(self._contents.get(identity, b""))

    def _identity(self, status: os.stat_result) -> tuple[int, int]:
        return status.st_ino, self._births.get(status.st_ino, 0)

    def _done(self, name: str, args: Any, result: Any) -> None:
        if name == "mkdir" or (name == "open" and args[1] & os.O_CREAT):
            inode = os.stat(args[0]).st_ino
            self._births[inode] = self._births.get(inode, 0) + 1
        elif name in ("unlink", "rmdir") and self._hasty:
            path = Path(args[0])
            self._names.get(self._identity(path.parent.stat()), {}).pop(path.name, None)
        elif name == "fsync":
            status = os.fstat(args[0])
            path = Path(f"/proc/self/fd/{args[0]}")
            if stat.S_ISDIR(status.st_mode):
                self._names[self._identity(status)] = {
                    entry.name: (
                        self._identity(entry.stat(follow_symlinks=False)),
                        entry.is_dir(follow_symlinks=False),
                    )
                    for entry in os.scandir(path)
                }
            else:
                self._contents[self._identity(status)] = path.read_bytes()


@contextmanager
def installed(faulty: Any) -> Iterator[None]:
    """Let all that writes checkpoints, torchsnapshot included, use ``faulty`` in place of `os`."""
    import aiofiles.threadpool

    class File(io.FileIO):
        """The file that torchsnapshot writes to."""

        def __init__(self, path: str, mode: str, **_: Any) -> None:
            super().__init__(path, mode, opener=faulty.open if "w" in mode else None)

        def write(self, data: Any) -> int:
            view = memoryview(data).cast("B")
            done = 0
            while done < len(view):
                done += faulty.write(self.fileno(), view[done:])
            return done

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and not self.parent.is_dir():
            mkdir(self.parent, parents=True, exist_ok=True)
        if not (exist_ok and self.is_dir()):
            faulty.mkdir(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fs, "os", faulty)
        patch.setattr(aiofiles.threadpool, "sync_open", File)
        patch.setattr(pathlib.Path, "mkdir", mkdir)
        yield


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary directory in memory where there is one, since here nothing is really flushed."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=memory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Planted:
    """Makes a directory when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)
