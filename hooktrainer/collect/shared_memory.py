"""Memory that several processes share, and that is gone with the last of them."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np

from ..errors import add_note
from .spaces import Array

_ALIGNMENT = 64


class SharedMemory:
    """A piece of memory that is handed out as arrays.

    It has no name, so that nothing is left behind however the processes end. Processes that ask for
    the same arrays in the same order get the same memory.

    Args:
        size: Bytes.
        descriptor: The open file of another process's memory; by default a new one is made.

    Raises:
        OSError: If there is not that much memory.
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self.size = size
        if descriptor is None:
            descriptor = _unnamed_file()
            try:
                os.ftruncate(descriptor, size)
                if hasattr(os, "posix_fallocate"):
                    # Taken now, so that a lack of memory is an error and not a signal later.
                    os.posix_fallocate(descriptor, 0, size)
            except OSError as error:
                os.close(descriptor)
                if error.errno == errno.ENOSPC:
                    add_note(error, f"environments in processes need {size / 2**20:.1f} MiB")
                raise
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, size)
        self._taken = 0

    @staticmethod
    def size_for(bytes_: int, arrays: int) -> int:
        """Bytes that so many arrays of so many bytes in all may take."""
        return bytes_ + arrays * _ALIGNMENT

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The next array; zeros in new memory."""
        count = math.prod(shape)
        array = np.frombuffer(self._map, dtype, count, self._taken).reshape(shape)
        self._taken += -(-count * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        return array

    def close_file(self) -> None:
        """Close the open file; the arrays remain."""
        os.close(self.descriptor)


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hooktrainer", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # has no name
        return os.dup(file.fileno())
