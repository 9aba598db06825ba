"""A policy in one file, to hand on: a zip archive that anybody can open, with a manifest.

Records are stored in alphabetical order with one date, so the same content gives the same bytes.
``manifest.json`` has the size and SHA-256 of each, and is sealed by a checksum. Unpacked, the
archive is the directory of a saved policy.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile, ZipInfo

from ..base import fs
from ..base.untrusted import MalformedError, check_name, open_file, refusing, shown
from ..base.untrusted.archive import stored_entries
from ..errors import DamagedCheckpointError
from ..store.stored import seal, unseal

PACKED: Final = ".hook"
"""How the name of a packed policy ends."""
MANIFEST: Final = "manifest.json"
CARD: Final = "README.md"
_SEAL: Final = "hook"
_FORMAT: Final = 1
_MOST_MANIFEST: Final = 1 << 20
_BLOCK: Final = 1 << 20
_MODE: Final = stat.S_IFREG | 0o644


def write_packed(file: Path, content: Mapping[str, bytes]) -> None:
    """Write a packed policy, complete or not at all."""
    records = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(content.items())
    }
    manifest = seal(_SEAL, {"format": _FORMAT, "files": records})
    with fs.replace_file(file) as new, ZipFile(new, "w") as archive:
        for name, data in sorted({**content, MANIFEST: manifest}.items()):
            entry = ZipInfo(name)  # of 1980, stored
            entry.create_system, entry.external_attr = 3, _MODE << 16
            archive.writestr(entry, data)


def check_packed(file: Path) -> None:
    """Compare every record of a packed policy with the manifest.

    Raises:
        DamagedCheckpointError: If something is wrong; names what.
    """
    with _opened(file) as (archive, records):
        for name, record in records.items():
            digest, size = hashlib.sha256(), 0
            with archive.open(name) as data:
                for block in iter(partial(data.read, _BLOCK), b""):
                    digest.update(block)
                    size += len(block)
            if [size, digest.hexdigest()] != [record["size"], record["sha256"]]:
                raise MalformedError(f"{name} does not match its hash in {MANIFEST}")


def read_packed(file: Path, name: str, limit: int) -> bytes:
    """Return the content of a record of a packed policy, of at most ``limit`` bytes.

    Raises:
        DamagedCheckpointError: If the archive's list of records is wrong, or that record.
    """
    with _opened(file) as (archive, records):
        if name not in records:
            raise MalformedError(f"it has no {name}")
        if archive.getinfo(name).file_size > limit:
            raise MalformedError(f"{name} has more than {limit:,} bytes")
        return archive.read(name)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[ZipFile, Mapping[str, Any]]]:
    """Open a packed policy, which holds exactly the files of its manifest, without folders."""
    with (
        refusing(f"{file} is damaged", DamagedCheckpointError),
        open_file(file) as opened,
        ZipFile(opened) as archive,
    ):
        listed = stored_entries(archive)
        entries = {entry.filename: entry for entry in listed}
        for entry in listed:
            if "/" in check_name(entry.filename) or entry.external_attr >> 16 != _MODE:
                raise MalformedError(f"{shown(entry.filename)} is no plain file")
        if len(entries) != len(listed) or MANIFEST not in entries:
            raise MalformedError(f"it has no {MANIFEST}, or two files of one name")
        if entries[MANIFEST].file_size > _MOST_MANIFEST:
            raise MalformedError(f"{MANIFEST} is too large")
        with refusing(f"{file} is damaged: {MANIFEST}", DamagedCheckpointError):
            manifest = unseal(_SEAL, archive.read(MANIFEST))
        if manifest["format"] != _FORMAT:
            raise MalformedError(
                f"it has format {shown(manifest['format'])}, and this version of hooktrainer "
                f"reads {_FORMAT}"
            )
        records = manifest["files"]
        if other := entries.keys() ^ {MANIFEST, *records}:
            raise MalformedError(f"{MANIFEST} and the archive disagree on {shown(min(other))}")
        yield archive, records
