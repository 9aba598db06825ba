"""Zip archives whose records are stored, not compressed: of `torch.save`, and packed policies."""

from __future__ import annotations

import io
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from .text import MalformedError


def stored_entries(archive: ZipFile) -> list[ZipInfo]:
    """Return the entries of an archive whose records fit into its file.

    Raises:
        MalformedError: If a record is compressed or encrypted, or records overlap.
    """
    entries = archive.infolist()
    for e in entries:
        packed = e.compress_type != ZIP_STORED or e.compress_size != e.file_size
        if packed or e.flag_bits & 1:
            raise MalformedError("it has compressed or encrypted records")
    assert archive.fp is not None
    if sum(e.file_size for e in entries) > archive.fp.seek(0, io.SEEK_END):
        raise MalformedError("its records overlap")
    return entries
