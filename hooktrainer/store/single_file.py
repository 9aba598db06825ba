"""A state tree in one file, written with `torch.save` and read with ``weights_only=True``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash

from ..base.untrusted import MalformedError, parse_json, refusing
from ..base.untrusted.read_torch import read_torch
from ..errors import CheckpointError
from . import fs
from .tree import flatten, unflatten

FORMAT = "hooktrainer-state-1"


def save_file(path: str | Path, tree: Any) -> None:
    """Save a state tree to one file, which appears complete and flushed to the disk, or not at all.

    The file is a `torch.save` of ``{"format", "skeleton", "tensors", "checksum"}``: the tree's JSON
    as a string, its tensors by name, on the CPU, and the xxh3-128 hash of both.

    Args:
        path: The file to write; one that is there is replaced. Its directory is created if needed.
        tree: The state tree; see `flatten` for what it may hold.

    Raises:
        CheckpointError: If a value in the tree cannot be saved.
        OSError: If the disk refuses.
    """
    skeleton, shared = flatten(tree)
    text = json.dumps(skeleton, allow_nan=False)
    tensors = compact(shared)
    content = {
        "format": FORMAT,
        "skeleton": text,
        "tensors": tensors,
        "checksum": _checksum(text, tensors),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with fs.replace_file(path) as file:
        torch_save(content, file)


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
        text, tensors = content["skeleton"], content["tensors"]
        if type(text) is not str or not all(type(x) is torch.Tensor for x in tensors.values()):
            raise MalformedError("it does not hold a tree and its tensors")
        if _checksum(text, tensors) != content["checksum"]:
            raise MalformedError("its content does not match its checksum")
        return unflatten(parse_json(text), tensors)


def torch_save(content: Any, file: fs.NewFile) -> None:
    """`torch.save` to an open file; the disk's own error is the one that is raised."""
    try:
        torch.save(content, file)  # type: ignore[arg-type]
    except RuntimeError:
        if file.error is not None:
            raise file.error from None
        raise


def compact(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return contiguous CPU tensors, each of which alone has a storage, and of its own size.

    `torch.save` writes a tensor's whole storage, however small the view, and restores tensors that
    shared one as sharing one.
    """
    compacted, seen = {}, set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.nbytes() > tensor.nbytes or storage.data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(storage.data_ptr())
        compacted[name] = tensor
    return compacted


def _checksum(text: str, tensors: dict[str, torch.Tensor]) -> str:
    digest = xxhash.xxh3_128(text.encode())
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
