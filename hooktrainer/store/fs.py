"""Files that survive a crash: all writing, renaming and deleting of checkpoints is done here.

The content of a file is durable only after ``fsync`` of the file, and its name only after ``fsync``
of its directory. Tests replace ``os`` in this module to fail, or to lose power, at each of its
calls.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1 << 23
_SEND_BYTES = 1 << 26
_BESIDE_BYTES = 1 << 23
_SLOW_FLUSH = 0.002  # seconds
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class NewFile:
    """A new file, open for writing. It has what `torch.save` needs: ``write`` and ``flush``.

    Nothing is buffered. What is written goes to the disk in the background while more is written,
    but nothing is durable before `flush_to_disk`.

    Args:
        path: Where to create it; the name must be free.
        size: Bytes to reserve on the disk, so that a full disk is found out before writing.
            What is not used is given back on closing.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.written = 0
        self.error: BaseException | None = None
        self._hash = xxhash.xxh3_128()
        self._reserved = size
        self._sent = 0
        self._sender: threading.Thread | None = None
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            _reserve(self._fd, size)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def digest(self) -> str:
        """The xxh3-128 hash of all that was written, in hexadecimal."""
        return self._hash.hexdigest()

    def write(self, data: Buffer) -> int:
        """Write all of ``data``.

        Raises:
            OSError: As the disk gives it. It is kept in `error` too: `torch.save` replaces it by
                one that does not say why.
        """
        view = memoryview(data).cast("B")
        hashing = None
        if len(view) < _BESIDE_BYTES:
            self._hash.update(view)
        else:  # hashed while it is written
            hashing = threading.Thread(target=self._hash.update, args=(view,))
            hashing.start()
        done = 0
        try:
            while done < len(view):
                done += os.write(self._fd, view[done:])
        except OSError as error:
            error.filename = error.filename or str(self.path)
            self.error = error
            raise
        finally:
            if hashing is not None:
                hashing.join()
        self.written += done
        if self.written - self._sent > _SEND_BYTES:
            self._send()
        return done

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def _send(self) -> None:
        """Let the disk begin with what was written, unless it is still busy with some of it."""
        if self._sender is None or not self._sender.is_alive():
            self._sent = self.written
            self._sender = threading.Thread(target=self._send_all, name="checkpoint-disk")
            self._sender.start()

    def _send_all(self) -> None:
        try:
            os.fsync(self._fd)
        except BaseException as error:  # raised on closing: the kernel tells of it only once
            self.error = error

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if self._sender is not None:
                self._sender.join()
            if self._reserved > self.written:
                os.ftruncate(self._fd, self.written)
        finally:
            os.close(self._fd)
        if kind is None and self.error is not None:
            raise self.error


def _reserve(fd: int, size: int) -> None:
    if not size or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def write_file(path: Path, data: bytes) -> None:
    """Create a file with this content; not durable yet."""
    with NewFile(path, len(data)) as file:
        file.write(data)


def check_space(directory: Path, size: int) -> None:
    """Raise the disk's own error if ``size`` bytes do not fit now.

    For writers that cannot reserve the space they will use.
    """
    probe = directory / ".space"
    try:
        with NewFile(probe, size):
            pass
    finally:
        with suppress(FileNotFoundError):
            os.unlink(probe)


def flush_to_disk(*paths: Path) -> None:
    """Make the contents of files, and the names in directories, durable.

    One after the other while that is quick: threads take longer than flushes of a fast disk. As
    soon as one is not, the rest at once: a slow disk then writes its journal once for many.
    """
    for number, path in enumerate(paths, start=1):
        start = time.perf_counter()
        _flush_one(path)
        if time.perf_counter() - start > _SLOW_FLUSH and len(paths) - number > 1:
            with ThreadPoolExecutor(4, "checkpoint-disk") as pool:
                for _ in pool.map(_flush_one, paths[number:]):
                    pass
            return


def _flush_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(fd)


@contextmanager
def replace_file(path: Path, size: int = 0) -> Iterator[NewFile]:
    """Write a file that appears under ``path`` complete and durable, or not at all.

    It is written beside, flushed, and renamed over ``path`` when the block ends without an
    exception; what was there before stays until that moment.
    """
    beside = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with NewFile(beside, size) as file:
            yield file
        flush_to_disk(beside)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    flush_to_disk(path.parent)


def make_directory(path: Path) -> None:
    """Create one directory; its parent must be there."""
    os.mkdir(path)


def make_directories(path: Path) -> None:
    """Create a directory and its parents where missing, each with a durable name."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush_to_disk(path.parent)


def link(source: Path, target: Path) -> None:
    """Give the file ``source`` a second name."""
    os.link(source, target)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory within one file system, to a name that is free.

    Raises:
        FileExistsError: If ``target`` exists.
    """
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "will not replace", str(target))
    os.rename(source, target)


def remove_tree(path: Path) -> None:
    """Delete a directory and all in it, or a file; nothing there is fine.

    Raises:
        OSError: The first that occurs; what can be deleted before it is gone.
    """
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            remove_tree(child)
        os.rmdir(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def hash_file(path: Path) -> str:
    """Return the xxh3-128 hash of a file's content, in hexadecimal."""
    with open(path, "rb", buffering=0) as file:
        return hash_open_file(file)


def hash_open_file(file: FileIO, size: int | None = None) -> str:
    """Return the xxh3-128 hash of what an open file holds from here on, in hexadecimal.

    Args:
        file: The file.
        size: So many bytes of it; by default all.
    """
    digest = xxhash.xxh3_128()
    left = os.fstat(file.fileno()).st_size if size is None else size
    buffer = memoryview(bytearray(min(_BLOCK, left) or 1))
    while left and (count := file.readinto(buffer[:left])):
        digest.update(buffer[:count])
        left -= count
    return digest.hexdigest()


def files_under(directory: Path) -> list[Path]:
    """Return the files in a directory and its subdirectories, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if not path.is_dir())


def directories_under(directory: Path) -> list[Path]:
    """Return a directory and all its subdirectories."""
    return [directory, *sorted(path for path in directory.rglob("*") if path.is_dir())]
