"""One checkpoint on disk: writing it so that it is complete or absent, and reading it back."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.untrusted import MalformedError, one_line, parse_json, read_file
from ..errors import CheckpointError, DamagedCheckpointError
from . import fs, lock
from .manifest import FILE as MANIFEST
from .manifest import FileRecord, Manifest, damages, read_manifest
from .provenance import new_run_id
from .retention import AnySaved, Best, Last, Retention

if TYPE_CHECKING:
    import torch

    from .backends import Backend
    from .tensor_spec import TensorSpec
    from .tree import Json

STATE = "state.json"
TENSORS = "tensors"
NAME = re.compile(r"step_(\d{12,})(?:-(\d+))?")


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
        """
        try:
            return cls(path, read_manifest(path))
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

    def stats(self) -> dict[str, tuple[int, ...]]:
        """Inode, size and time of change of each file: equal as long as none was touched."""
        found = {name: (self.path / name).stat() for name in self.manifest.files}
        return {name: (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found.items()}

    def as_parent(self) -> dict[str, Any]:
        """What a run that branches off here records: ``run_id``, ``path`` and ``frames``."""
        return {
            "run_id": self.manifest.run_id,
            "path": str(self.path.absolute()),
            "frames": self.manifest.frames,
        }

    def verify(self) -> None:
        """Read every file, compare it with the manifest, and compare what the files say.

        A checkpoint that someone made may match its hashes and claim what it does not hold. No
        memory is taken for its tensors.

        Raises:
            DamagedCheckpointError: If anything differs; names all files that do.
            CheckpointError: If what it holds is not known to this version, or cannot be read here.
        """
        from .tree import blank, unflatten

        with self._checked() as (skeleton, specs, _):
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
        with self._reading():
            return self._describe()[:2]

    @contextmanager
    def _checked(self) -> Iterator[tuple[Json, dict[str, TensorSpec], Backend]]:
        """What `_describe` returns, after everything was compared with everything else."""
        with self._reading():
            found = list(damages(self.path, self.manifest))
            there = (f.relative_to(self.path) for f in fs.files_under(self.path / TENSORS))
            for name in (STATE, *(path.as_posix() for path in there)):
                if name not in self.manifest.files:
                    found.append(f"{MANIFEST} does not list {name}")
            if found:
                raise DamagedCheckpointError(f"{self.path} is damaged: {'; '.join(found)}")
            skeleton, specs, backend = self._describe()
            backend.check(self.path / TENSORS, specs)
            yield skeleton, specs, backend

    def _describe(self) -> tuple[Json, dict[str, TensorSpec], Backend]:
        from .backends import get_backend  # only here: to list checkpoints needs no PyTorch
        from .tensor_spec import TensorSpec

        state = parse_json(read_file(self.path / STATE, self.path))
        specs = {name: TensorSpec.parse(spec) for name, spec in state["tensors"].items()}
        return state["skeleton"], specs, get_backend(self.manifest.backend)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """While the block runs the checkpoint is not deleted; what is wrong is said in one line."""
        try:
            with lock.reading(self.path / MANIFEST):
                yield
        except CheckpointError:
            raise
        except (MalformedError, FileNotFoundError, LookupError, AttributeError) as error:
            raise DamagedCheckpointError(f"{self.path} is damaged: {one_line(error)}") from None
        except Exception as error:  # what a back end's library raises is not known
            raise CheckpointError(
                f"{self.path} cannot be read with the back end {self.manifest.backend}: "
                f"{one_line(error)}"
            ) from error


def encode_state(skeleton: Json, specs: Mapping[str, TensorSpec]) -> bytes:
    """Return the content of ``state.json``: the JSON of a state, and the specs of its tensors."""
    texts = {spec: str(spec) for spec in set(specs.values())}  # most tensors are like others
    state = {"skeleton": skeleton, "tensors": {name: texts[spec] for name, spec in specs.items()}}
    return json.dumps(state, allow_nan=False, separators=(",", ":")).encode()


def write_state(
    path: Path, skeleton: Json, tensors: Mapping[str, torch.Tensor], backend: str
) -> Checkpoint:
    """Write what `flatten` returned as a checkpoint of no run; see `write_checkpoint`."""
    from .backends import get_backend
    from .tensor_spec import TensorSpec

    manifest = Manifest(0, 0, 0, time.time(), backend, new_run_id())
    specs = {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
    state = encode_state(skeleton, specs)
    return write_checkpoint(path, manifest, state, tensors, get_backend(backend))


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
        path: Where it shall be; the name must be free.
        manifest: What it says about itself; `files` is filled in here.
        state: What `encode_state` returned for the state.
        tensors: The tensors of the state. They must not change meanwhile.
        backend: What stores the tensors.
        previous: Tensors that this back end wrote before, to share unchanged files with.

    Raises:
        OSError: As the disk gives it.
    """
    with fs.new_directory(path) as work:
        fs.make_directory(work / TENSORS)
        hashes = backend.write(work / TENSORS, tensors, previous)
        fs.write_file(work / STATE, state)
        files = {}
        for file in fs.files_under(work):
            name = file.relative_to(work).as_posix()
            with open(file, "rb", buffering=0) as opened:
                digest = hashes.get(name.removeprefix(f"{TENSORS}/")) or fs.hash_file(opened)
            files[name] = FileRecord(file.stat().st_size, digest)
        manifest = dataclasses.replace(manifest, files=files)
        fs.write_file(work / MANIFEST, manifest.encode())
    return Checkpoint(path, manifest)


# -- Moving checkpoints out of the way and deleting them, so that none is ever half there.

_log = logging.getLogger(__name__)
UNFINISHED = ".tmp-*"
TRASH = ".trash-*"


def free_path(directory: Path, frames: int) -> Path:
    """Return a name for a new checkpoint: ``step_<12 digits>``, and a number behind if taken."""
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
    fs.flush_to_disk(path.parent)
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
    try:
        with lock.not_reading(path / MANIFEST) as free:
            if not free:
                _log.info("%s is being read: it is deleted later.", path)
                return False
            trash = move_away(path, ".trash")
    except OSError as error:
        _log.warning("%s could not be deleted, and is tried again: %s", path, error)
        return False
    sweep(path.parent, trash.name)
    return True


def quarantine(path: Path, reason: str) -> None:
    """Set a damaged checkpoint aside as ``damaged-…``, with the reason in ``reason.txt``."""
    try:
        moved = move_away(path, "damaged")
        fs.write_file(moved / "reason.txt", f"{reason}\n".encode())
    except OSError as error:
        _log.warning("%s could not be set aside: %s", path, error)


def surplus(saved: Sequence[AnySaved], keep: Retention, best: Best | None) -> list[AnySaved]:
    """Return what is not to be kept, the oldest first; the latest and the best stay anyway."""
    kept = keep.keep(saved) | Last(1).keep(saved)
    if best:
        kept |= {one.path for one in best.ranked(saved)[:1]}
    return [one for one in saved if one.path not in kept]
