"""Files that survive a crash: all writing, renaming and deleting of checkpoints is done here.

The content of a file is durable only after ``fsync`` of the file, and its name only after ``fsync``
of its directory. Tests replace ``os`` in this module to fail, or to lose power, at each of its
calls.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from ..base.untrusted import MalformedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1 << 23


class NewFile:
    """An unbuffered new file, with what `torch.save` needs: ``write`` and ``flush``.

    Args:
        path: Where to create it; the name must be free.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        self._hash = xxhash.xxh3_128()
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)

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
        self._hash.update(view)
        done = 0
        try:
            while done < len(view):
                done += os.write(self._fd, view[done:])
        except OSError as error:
            error.filename = error.filename or str(self.path)
            self.error = error
            raise
        return done

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def write_file(path: Path, data: Buffer) -> None:
    """Create a file with this content; not durable yet."""
    with NewFile(path) as file:
        file.write(data)


def check_space(directory: Path, size: int) -> None:
    """Raise the error of a full disk if ``size`` bytes do not fit now.

    Until a write that fills the disk is undone, the writes of others fail too.
    """
    disk = os.statvfs(directory)
    free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
    if disk.f_blocks and size > free:  # without blocks, it is not known
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


def flush_to_disk(*paths: Path) -> None:
    """Make the contents of files, and the names in directories, durable."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(fd)


@contextmanager
def replace_file(path: Path) -> Iterator[NewFile]:
    """Write a file that appears under ``path`` complete and durable, or not at all.

    It is written beside, flushed, and renamed over ``path`` when the block ends without an
    exception; what was there before stays until that moment.
    """
    beside = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with NewFile(beside) as file:
            yield file
        flush_to_disk(beside)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    flush_to_disk(path.parent)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Fill a directory that appears under ``path`` complete and durable, or not at all.

    The block writes to a directory beside, which is flushed and renamed when the block ends without
    an exception. Nothing is left otherwise, unless that cannot be deleted either.
    """
    work = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        os.mkdir(work)
        yield work
        inside = sorted(work.rglob("*"))
        linked = {file for file in inside if file.is_file() and file.stat().st_nlink > 1}
        flush_to_disk(*(entry for entry in inside if entry not in linked), work)
        rename(work, path)
    except BaseException:
        with suppress(OSError):
            remove_tree(work)
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


def hash_file(file: FileIO) -> str:
    """Return the xxh3-128 hash of what an open file holds, in hexadecimal."""
    digest = xxhash.xxh3_128()
    buffer = memoryview(bytearray(_BLOCK))
    while count := file.readinto(buffer):
        digest.update(buffer[:count])
    return digest.hexdigest()


def read_into(file: FileIO, target: memoryview) -> None:
    """Fill ``target`` from an open file.

    Raises:
        MalformedError: If the file ends before.
    """
    done = 0
    while done < len(target):
        if not (count := file.readinto(target[done:])):
            raise MalformedError(f"{file.name} ends too early")
        done += count


def files_under(directory: Path) -> list[Path]:
    """Return the files in a directory and its subdirectories, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if not path.is_dir())
