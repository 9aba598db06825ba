"""One checkpoint on disk: its manifest, writing it complete or not at all, and reading it back."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from ..base import fs
from ..base.untrusted import (
    MAX_STRUCTURE,
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
from . import lock
from .retention import AnySaved, Best, Retention

if TYPE_CHECKING:
    import torch

    from .backends import Backend
    from .tree import Json, TensorSpec

MANIFEST = "manifest.json"
STATE = "state.json"
TENSORS = "tensors"
SCHEMA = 5
_DAMAGE = {errno.EIO, errno.EBADMSG, errno.ENOTDIR}  # bad sectors, a file in place of a directory
NAME = re.compile(r"step_(\d{12,})(?:-(\d+))?")


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint."""

    size: int
    """In bytes."""
    xxh3_128: str
    """The hash of its content, in hexadecimal."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint. Written last, with a hash of its own."""

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
    """The criterion of the best checkpoint: ``metric``, and ``mode``, which is max or min."""
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
        with refusing(MANIFEST, DamagedCheckpointError):
            node = unseal("manifest", data)
            from .tree import unflatten

            fields = unflatten(node, {})
            schema = fields.pop("schema")
        if schema != SCHEMA:
            raise CheckpointError(
                f"The checkpoint has schema {shown(schema)}, and this version of hooktrainer reads "
                f"{SCHEMA}: load it with the version that wrote it "
                f"({one_line(fields.get('versions'))})."
            )
        with refusing(MANIFEST, DamagedCheckpointError):
            files = fields["files"]
            for name, record in files.items():
                check_fields(record, FileRecord)
                files[name] = FileRecord(**record)
                check_name(name)
            check_fields(fields, cls)
            return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Return the checkpoint in a directory, after reading its manifest only.

        Raises:
            DamagedCheckpointError: If the manifest is missing or damaged.
            CheckpointError: If this process cannot read it.
        """
        try:
            with _damage_in(MANIFEST):
                return cls(path, Manifest.decode(read_file(path / MANIFEST, path)))
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(f"{path} is damaged: {error}") from None

    @property
    def frames(self) -> int:
        """Environment frames of the run when it was saved."""
        return self.manifest.frames

    @property
    def time(self) -> float:
        """When it was saved, in seconds since 1970."""
        return self.manifest.time

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics reported last."""
        return self.manifest.metrics

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by name and hash: what checkpoints share is linked."""
        files = self.manifest.files.items()
        return {f"{name} {record.xxh3_128}": record.size for name, record in files}

    def stats(self) -> list[tuple[int, ...]]:
        """Inode, size and time of change of each file: equal as long as none was touched."""
        found: list[tuple[int, ...]] = []
        for name in self.manifest.files:
            stat = (self.path / name).stat()
            found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return found

    def as_parent(self) -> dict[str, Any]:
        """The record of a run that branches off here: ``run_id``, ``path`` and ``frames``."""
        known = self.manifest
        return {"run_id": known.run_id, "path": str(self.path.absolute()), "frames": known.frames}

    def verify(self) -> None:
        """Read every file, compare it with the manifest, and check the files' metadata.

        A forged checkpoint may match its hashes and claim tensors that it does not hold. No memory
        is allocated for its tensors.

        Raises:
            DamagedCheckpointError: If anything differs; names each file that does.
            CheckpointError: If what it holds is not known to this version, or cannot be read here.
        """
        from .tree import blank, unflatten

        with self._checked() as (skeleton, specs, backend):
            backend.check(self.path / TENSORS, specs)
            unflatten(skeleton, blank(specs))

    def load(self) -> Any:
        """Verify the checkpoint, and return the state tree in it.

        The checkpoint is not deleted meanwhile by the run it belongs to.

        Raises:
            DamagedCheckpointError: If its files are not what was written.
            CheckpointError: If they cannot be read here.
        """
        from .tree import unflatten

        with self._checked() as (skeleton, specs, backend):
            return unflatten(skeleton, backend.read(self.path / TENSORS, specs))

    def describe(self) -> tuple[Json, dict[str, TensorSpec]]:
        """Return the skeleton of the state, and the specs of its tensors; no other file is read.

        Raises:
            DamagedCheckpointError: If ``state.json`` is not what such a file is.
        """
        from .tree import TensorSpec  # only here: to list checkpoints needs no PyTorch

        with self._reading():
            state = parse_json(read_file(self.path / STATE, self.path))
            specs = {name: TensorSpec.parse(spec) for name, spec in state["tensors"].items()}
            return state["skeleton"], specs

    @contextmanager
    def _checked(self) -> Iterator[tuple[Json, dict[str, TensorSpec], Backend]]:
        """Yield what `describe` returns and the back end, after every file was hashed."""
        from .backends import get_backend

        with self._reading():
            damage = []
            for name, record in self.manifest.files.items():
                try:
                    with _damage_in(name), open_file(self.path / name, self.path) as file:
                        size = os.fstat(file.fileno()).st_size
                        if size != record.size:
                            damage.append(f"{name} has {size} bytes, not {record.size}")
                        elif fs.hash_file(file) != record.xxh3_128:
                            damage.append(f"{name} does not match its hash")
                        # The next save would link to it by its name.
                        elif name.endswith(".chunk") and Path(name).stem != record.xxh3_128:
                            damage.append(f"{name} is named by another hash")
                except DamagedCheckpointError as error:
                    damage.append(str(error))
            if damage:
                raise DamagedCheckpointError("; ".join(damage))
            there = (f.relative_to(self.path) for f in fs.files_under(self.path / TENSORS))
            for name in (STATE, *(path.as_posix() for path in there)):
                if name not in self.manifest.files:
                    raise MalformedError(f"{MANIFEST} does not list {name}")
            yield *self.describe(), get_backend(self.manifest.backend)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep the checkpoint from being deleted during the block; shorten errors to one line."""
        try:
            with lock.locked(self.path / MANIFEST):
                yield
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(f"{self.path} is damaged: {error}") from None
        except CheckpointError:
            raise
        except (MalformedError, FileNotFoundError, LookupError, AttributeError) as error:
            raise DamagedCheckpointError(f"{self.path} is damaged: {one_line(error)}") from None
        except Exception as error:  # what a back end's library raises is not known
            raise CheckpointError(
                f"{self.path} cannot be read with the back end {self.manifest.backend}: "
                f"{one_line(error)}"
            ) from error


@contextmanager
def _damage_in(name: str) -> Iterator[None]:
    """Distinguish a damaged file from one that this process may not, or cannot, read."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{name} is missing") from None
    except MalformedError as error:
        raise DamagedCheckpointError(f"{name}: {error}") from None
    except OSError as error:
        if error.errno in _DAMAGE:
            raise DamagedCheckpointError(f"{name} cannot be read ({error.strerror})") from None
        raise CheckpointError(
            f"{error.filename or name} cannot be read ({error.strerror}), and may be intact: try "
            "again, or name an earlier checkpoint."
        ) from None


def encode_state(skeleton: Json, tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return the content of ``state.json``: the JSON of a state, and the specs of its tensors.

    Raises:
        CheckpointError: If it is longer than what is read.
    """
    from .tree import TensorSpec

    specs = {name: str(TensorSpec.of(tensor)) for name, tensor in tensors.items()}
    node = {"skeleton": skeleton, "tensors": specs}
    text = json.dumps(node, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_STRUCTURE:
        raise CheckpointError(
            f"The state has {len(text):,} bytes besides its tensors, more than {MAX_STRUCTURE:,}: "
            "return large data from state_dict() as tensors or NumPy arrays."
        )
    return text.encode()


def write_checkpoint(
    path: Path,
    manifest: Manifest,
    state: bytes,
    tensors: Mapping[str, torch.Tensor],
    backend: Backend,
    previous: Path | None = None,
) -> Checkpoint:
    """Write a checkpoint that appears under ``path`` complete and durable, or not at all.

    Args:
        path: The new directory; the name must be free.
        manifest: Its description; `files` is filled in here.
        state: What `encode_state` returned for the state.
        tensors: The tensors of the state. They must not change meanwhile.
        backend: What stores the tensors.
        previous: Tensors that this back end wrote before, to share unchanged files with.

    Raises:
        OSError: As the disk gives it.
    """
    with fs.new_directory(path) as work:
        (work / TENSORS).mkdir()
        hashes = backend.write(work / TENSORS, tensors, previous)
        files = {STATE: FileRecord(len(state), fs.write_file(work / STATE, state))}
        for file in fs.files_under(work / TENSORS):
            name = file.relative_to(work / TENSORS).as_posix()
            digest = hashes.get(name)
            if digest is None:
                with open(file, "rb", buffering=0) as opened:
                    digest = fs.hash_file(opened)
            files[f"{TENSORS}/{name}"] = FileRecord(file.stat().st_size, digest)
        manifest = dataclasses.replace(manifest, files=files)
        fs.write_file(work / MANIFEST, manifest.encode())
    return Checkpoint(path, manifest)


# -- JSON files with a checksum of their own, so that a change of any byte is found.


def seal(name: str, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file, one entry a line: the content under a name, its hash first.

    Raises:
        TypeError: If the content is no plain data.
    """
    # Indented by json.dumps(indent=...), it would take several times as long.
    lines = ",\n".join(
        [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    )
    text = f"{{\n{lines}\n}}"
    digest = xxhash.xxh3_128_hexdigest(text.encode())
    return f'{{"xxh3_128": "{digest}",\n"{name}": {text}}}\n'.encode()


def unseal(name: str, data: bytes) -> dict[str, Any]:
    """Return the content of a file that `seal` made.

    The checksum finds damage. It does not authenticate the file, which may hold anything.

    Raises:
        MalformedError: If a byte of it changed, or it is no JSON object.
    """
    sealed = re.fullmatch(
        rb'\{"xxh3_128": "([0-9a-f]{32})",\n"%s": (.*)\}\n' % name.encode(), data, re.DOTALL
    )
    if sealed is None or xxhash.xxh3_128_hexdigest(sealed[2]).encode() != sealed[1]:
        raise MalformedError("it does not match its own hash")
    content = parse_json(sealed[2], nan=True)
    if not isinstance(content, dict):
        raise MalformedError("it holds no JSON object")
    return content


# -- Moving checkpoints out of the way and deleting them, so that none is ever half there.

_log = logging.getLogger(__name__)
UNFINISHED = ".tmp-*"
TRASH = ".trash-*"


def free_path(directory: Path, frames: int) -> Path:
    """Return a name for a new checkpoint: ``step_<12 digits>``, and a number appended if taken."""
    base = path = directory / f"step_{frames:012d}"
    count = 1
    while os.path.lexists(path):
        count += 1
        path = base.with_name(f"{base.name}-{count}")
    return path


def move_away(path: Path, prefix: str) -> Path:
    """Rename a checkpoint, durably, to a name that no listing shows; return its new path."""
    target = path.with_name(f"{prefix}-{path.name}-{secrets.token_hex(4)}")
    fs.rename(path, target)
    return target


def sweep(directory: Path, *patterns: str) -> None:
    """Delete what matches; what cannot be deleted is logged."""
    for pattern in patterns:
        for path in sorted(directory.glob(pattern)):
            try:
                fs.remove_tree(path)
            except OSError as error:
                _log.warning("%s could not be deleted, and is tried again: %s", path, error)


def delete(path: Path) -> bool:
    """Delete a checkpoint, unless someone reads it. Return whether it is gone from the listing.

    It is renamed first: a crash in the midst leaves no half of it under its name.
    """
    guard = path / MANIFEST
    try:
        with lock.locked(guard, alone=True) if guard.exists() else nullcontext() as free:
            if free is False:
                _log.info("%s is being read: it is deleted later.", path)
                return False
            trash = move_away(path, ".trash")
    except OSError as error:
        _log.warning("%s could not be deleted, and is tried again: %s", path, error)
        return False
    sweep(path.parent, trash.name)
    return True


def surplus(saved: Sequence[AnySaved], keep: Retention, best: Best | None) -> list[AnySaved]:
    """Return what is not to be kept, the oldest first; the latest and the best stay anyway."""
    kept = keep.keep(saved)
    for one in (*saved[-1:], *(best.ranked(saved)[:1] if best else ())):
        kept.add(one.path)
    return [one for one in saved if one.path not in kept]
