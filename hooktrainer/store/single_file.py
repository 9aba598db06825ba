"""A state tree in one file, written with `torch.save` and read with ``weights_only=True``.

A back end that needs a directory gets one next to the file, which then holds only its name:
replacing the file replaces the whole state, atomically.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash

from ..base import fs
from ..base.untrusted import MalformedError, check_name, parse_json, refusing
from ..base.untrusted.read_torch import read_torch
from ..errors import CheckpointError
from .backends import compact, get_backend, torch_save
from .provenance import new_run_id
from .stored import Checkpoint, Manifest, delete, encode_state, write_checkpoint
from .tree import byte_view, flatten, unflatten

FORMAT = "hooktrainer-state-3"


def save_file(path: str | Path, tree: Any, backend: str = "torch") -> None:
    """Save a state tree to a file, which appears complete and flushed to the disk, or not at all.

    With the back end ``"torch"`` the file is a `torch.save` of ``{"format", "state", "tensors",
    "checksum"}``: what `encode_state` returns, as text, the tensors by name, on the CPU, and the
    xxh3-128 hash of both. With any other, tree and tensors are in a directory ``<file>.tensors``,
    and the file holds the place in it.

    Args:
        path: The file to write; one that is there is replaced. Its directory is created if needed.
        tree: The state tree; see `flatten` for what it may hold.
        backend: How tensors are stored; see `hooktrainer.store.backends`.

    Raises:
        CheckpointError: If a value in the tree cannot be saved, or there is no such back end.
        OSError: If the disk refuses.
    """
    path = Path(path)
    skeleton, tensors = flatten(tree)
    state = encode_state(skeleton, tensors)
    fs.make_directories(path.parent)
    folder = path.with_name(f"{path.name}.tensors")
    content: dict[str, Any] = {"format": FORMAT}
    if backend == "torch":
        text, compacted = state.decode(), compact(tensors)
        checksum = checksum_of(text, compacted)
        content |= {"state": text, "tensors": compacted, "checksum": checksum}
    else:
        fs.make_directories(folder)
        place = folder / f"state-{secrets.token_hex(4)}"
        manifest = Manifest(0, 0, 0, time.time(), backend, new_run_id())  # of no run
        write_checkpoint(place, manifest, state, tensors, get_backend(backend))
        content["directory"] = f"{folder.name}/{place.name}"
    with fs.replace_file(path) as file:
        torch_save(content, file)
    for old in folder.glob("*state-*"):  # unfinished ones too; until here one was the state
        if old.name != Path(content.get("directory", "")).name:
            delete(old)


def load_file(path: str | Path) -> Any:
    """Return the state tree that `save_file` saved.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is damaged, not written by `save_file`, or holds a pickle of anything
            but plain data and tensors, which is not run.
    """
    return decode(read_plain(path), path)


def read_plain(path: str | Path) -> Any:
    """Return what `torch.save` wrote, if that is plain data and tensors.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is damaged, or holds a pickle of anything else, which is not run.
    """
    try:
        return read_torch(Path(path))
    except MalformedError as error:
        raise CheckpointError(
            f"{path} cannot be read as a state file: it is damaged, or holds more than plain data "
            f"and tensors, which is never loaded ({error})."
        ) from error


def decode(content: Any, path: str | Path) -> Any:
    """Return the state tree in what was read from ``path``.

    Raises:
        CheckpointError: If there is none, or it is damaged.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a state file of the format {FORMAT!r}.")
    with refusing(f"{path} is damaged", CheckpointError):
        if "directory" in content:
            parent = Path(path).parent
            directory = parent / check_name(content["directory"])
            if not directory.exists():
                raise MalformedError(f"{content['directory']}, which belongs to it, is missing")
            if directory.resolve().parent.parent != parent.resolve():
                raise MalformedError(f"{content['directory']} is a link out of its directory")
            return Checkpoint.open(directory).load()
        text, tensors = content["state"], content["tensors"]
        if type(text) is not str or not all(type(x) is torch.Tensor for x in tensors.values()):
            raise MalformedError("it does not hold a tree and its tensors")
        if checksum_of(text, tensors) != content["checksum"]:
            raise MalformedError("its content does not match its checksum")
        return unflatten(parse_json(text)["skeleton"], tensors)


def checksum_of(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """The xxh3-128 hash of a state: its ``state.json``, and its tensors."""
    digest = xxhash.xxh3_128(text.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(byte_view(tensor).numpy().data)
    return digest.hexdigest()
