"""Files that survive a crash: all that must not be lost is written, renamed and deleted here.

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

from ..errors import TakenError
from .untrusted import MalformedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1 << 23


class NewFile(FileIO):
    """An unbuffered new file, whose name must be free.

    Attributes:
        hash: The xxh3-128 hash of all that was written.
        error: The error of the disk; `torch.save` replaces it by one without a reason.
    """

    error: OSError | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x", opener=lambda path, flags: os.open(path, flags, 0o666))
        self.hash = xxhash.xxh3_128()

    def write(self, data: Buffer) -> int:
        """Write all of ``data``; raise `OSError` as the disk gives it."""
        view = memoryview(data).cast("B")
        self.hash.update(view)
        done = 0
        try:
            while done < len(view):
                done += os.write(self.fileno(), view[done:])
        except OSError as error:
            error.filename = str(self.name)
            self.error = error
            raise
        return done


def write_file(path: Path, data: Buffer) -> str:
    """Create a file with this content, not durable yet; return the hash of it."""
    with NewFile(path) as file:
        file.write(data)
    return file.hash.hexdigest()


def check_space(directory: Path, size: int) -> None:
    """Raise the error of a full disk if ``size`` bytes do not fit now.

    Until a write that fills the disk is undone, the writes of others fail too.
    """
    disk = os.statvfs(directory)
    if disk.f_blocks and size > disk.f_frsize * disk.f_bavail:  # without blocks, it is not known
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
def replace_file(path: Path, *, durable: bool = True) -> Iterator[NewFile]:
    """Write a file that appears under ``path`` complete, or not at all; a link is replaced.

    It is written under a temporary name, flushed if ``durable``, and renamed over ``path`` when the
    block ends without an exception; the former file stays until that moment.
    """
    temporary = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        with NewFile(temporary) as file:
            yield file
        if durable:
            flush_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        flush_to_disk(path.parent)


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file by one with this content; see `replace_file`.

    Raises:
        TakenError: If there is a directory or a device of that name.
    """
    if path.exists() and not path.is_file():
        raise TakenError(f"{path} is no file: choose another name.")
    with replace_file(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Fill a directory that appears under ``path`` complete and durable, or not at all.

    The block writes to a temporary directory, which is flushed and renamed when the block ends
    without an exception; otherwise it is deleted, if possible.
    """
    work = path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")
    try:
        os.mkdir(work)
        yield work
        for entry in sorted(work.rglob("*")):
            if entry.is_dir() or entry.stat().st_nlink == 1:  # else it was flushed when written
                flush_to_disk(entry)
        flush_to_disk(work)
        rename(work, path)
    except BaseException:
        with suppress(OSError):
            remove_tree(work)
        raise


def make_directories(path: Path) -> None:
    """Create a directory and its parents where missing, each with a durable name."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush_to_disk(path.parent)


def link(source: Path, target: Path) -> bool:
    """Give a file a second name; return whether that worked, on a file system that has links."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory within one file system, durably."""
    os.rename(source, target)
    flush_to_disk(target.parent)


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


def open_to_lock(path: Path) -> int:
    """Open or create a lock file, not through a link, and return its descriptor."""
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise TakenError(f"{path} is a link: remove it.") from None
