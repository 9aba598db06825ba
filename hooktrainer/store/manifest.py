"""The manifest: what a checkpoint is, and the size and hash of each of its files."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from ..base.untrusted import (
    MalformedError,
    check_fields,
    check_name,
    one_line,
    open_file,
    parse_json,
    read_file,
    refusing,
    shown,
)
from ..errors import CheckpointError, DamagedCheckpointError
from . import fs

FILE = "manifest.json"
SCHEMA = 5
# What keeps a process from reading a file that may be intact: rights, limits, a file server.
_NOT_THE_FILE = {
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR),
    *(errno.ESTALE, errno.ETIMEDOUT),
}


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint."""

    size: int
    """In bytes."""
    xxh3_128: str
    """The hash of its content, in hexadecimal."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a checkpoint says about itself. Written last, with a hash of its own."""

    frames: int
    """Environment frames of the run so far."""
    optim_steps: int
    """Optimizer steps of the run so far."""
    sequence: int
    """The number of commits before this one in the run; the highest is the latest."""
    time: float
    """When it was captured, in seconds since 1970."""
    backend: str
    """The back end that stored the tensors."""
    run_id: str
    """The run it belongs to."""
    forked_from: Mapping[str, Any] | None = None
    """Where that run branched off: ``run_id``, ``path`` and ``frames`` of another's checkpoint."""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    best: Mapping[str, str] | None = None
    """What counts as the best of the run: ``metric``, and ``mode``, which is max or min."""
    versions: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    git_commit: str | None = None
    git_dirty: bool | None = None
    files: Mapping[str, FileRecord] = dataclasses.field(default_factory=dict)
    """Every other file of the checkpoint, by its path in the directory."""

    @property
    def nbytes(self) -> int:
        """The size of all files, in bytes; what is shared with other checkpoints counts in full."""
        return sum(record.size for record in self.files.values())

    def encode(self) -> bytes:
        """Return the content of ``manifest.json``.

        Raises:
            CheckpointError: If the configuration holds a value that is not plain data.
        """
        from .tree import flatten  # imports tensordict, which a saved policy does without

        node, tensors = flatten({"schema": SCHEMA, **dataclasses.asdict(self)})
        if tensors:
            raise CheckpointError(f"{next(iter(tensors))}: an array cannot be in a configuration.")
        return seal("manifest", node)

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Return the manifest that `encode` wrote.

        Raises:
            DamagedCheckpointError: If any of its bytes changed, or it is not what `encode` writes.
            CheckpointError: If its schema is not known.
        """
        with refusing(FILE, DamagedCheckpointError):
            try:
                node = unseal("manifest", data)
            except DamagedCheckpointError as error:
                raise DamagedCheckpointError(f"{FILE} {error}") from None
            from .tree import unflatten

            fields = unflatten(node, {})
            schema = fields.pop("schema")
        if schema != SCHEMA:
            raise CheckpointError(
                f"The checkpoint has schema {shown(schema)}, and this version of "
                f"hooktrainer reads {SCHEMA}: load it with the version that wrote it "
                f"({one_line(fields.get('versions'))})."
            )
        with refusing(FILE, DamagedCheckpointError):
            files = {check_name(name): _record(record) for name, record in fields["files"].items()}
            check_fields(fields := {**fields, "files": files}, cls)
            return cls(**fields)


def _record(fields: Any) -> FileRecord:
    check_fields(fields, FileRecord)
    return FileRecord(**fields)


def read_manifest(checkpoint: Path) -> Manifest:
    """Return the manifest of a checkpoint directory; its other files are not looked at.

    Raises:
        DamagedCheckpointError: If the manifest is missing, unreadable or damaged.
        CheckpointError: If it is this process that cannot read it.
    """
    with _damage_in(FILE):
        return Manifest.decode(read_file(checkpoint / FILE, checkpoint))


def damages(checkpoint: Path, manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with each file of a checkpoint, after reading all of them.

    Such as ``"state.json has 12 bytes instead of 40"``.

    Raises:
        CheckpointError: If it is this process that cannot read one.
    """
    for name, record in manifest.files.items():
        try:
            with _damage_in(name), open_file(checkpoint / name, checkpoint) as file:
                size = os.fstat(file.fileno()).st_size
                if size != record.size:
                    yield f"{name} has {size} bytes instead of {record.size}"
                elif fs.hash_file(file) != record.xxh3_128:
                    yield f"{name} does not match its hash"
        except DamagedCheckpointError as error:
            yield str(error)


@contextmanager
def _damage_in(name: str) -> Iterator[None]:
    """Tell a damaged file from one that is out of this process's reach, by rights or limits."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{name} is missing") from None
    except MalformedError as error:
        raise DamagedCheckpointError(f"{name}: {error}") from None
    except OSError as error:
        if error.errno not in _NOT_THE_FILE:
            raise DamagedCheckpointError(f"{name} cannot be read ({error.strerror})") from None
        raise CheckpointError(
            f"{error.filename or name} cannot be read ({error.strerror}), so that it is not known "
            "whether it is damaged. See that it can be, and try again."
        ) from None


# -- JSON files with a checksum of their own, so that a change of any byte is found.


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
