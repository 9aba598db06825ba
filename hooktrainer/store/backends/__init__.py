"""Back ends: how the tensors of a checkpoint are stored. ``CKPT_BACKEND`` names the one to use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol, cast

import torch

from ...base import fs
from ...base.untrusted import MalformedError as MalformedError
from ...base.untrusted import shown
from ...base.untrusted.read_torch import read_torch
from ...errors import CheckpointError
from ..tree import TensorSpec

VARIABLE = "CKPT_BACKEND"


class Backend(Protocol):
    """Stores tensors in files. It need not flush, hash or commit: `write_checkpoint` does.

    A back end never pickles, and never reads anything but what it wrote itself. The files may have
    been made by someone else, with hashes that match.
    """

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write tensors to an empty directory.

        Args:
            directory: Where to write; it exists and is empty.
            tensors: Tensors by name, on any device, with any strides. They do not change meanwhile.
            previous: A directory this back end wrote before, intact and not to be changed, whose
                files may be hard-linked where their content did not change.

        Returns:
            The xxh3-128 hashes of files whose content was hashed while it was written, by their
            path in ``directory``; the others are read again to hash them.

        Raises:
            OSError: As the disk gives it.
        """
        ...

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Check the metadata of the files against each other and their sizes.

        Allocates no memory for the tensors.

        Args:
            directory: What `write` wrote to; its files have the sizes and hashes of the manifest.
            specs: The dtype and shape of every tensor written, in the order they were written.

        Raises:
            MalformedError: If the files cannot hold just these tensors, or there is no memory for
                them.
            OSError: As the disk gives it.
        """
        ...

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors, and refuse what `check` refuses before memory is taken for them.

        Returns:
            New contiguous CPU tensors by name, each with its own memory.
        """
        ...


class TorchBackend:
    """Stores tensors with `torch.save`, as one dict from name to tensor.

    ``torch.load("tensors.pt", weights_only=True)`` reads the file without hooktrainer.
    """

    FILE = "tensors.pt"

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write all tensors to one file; see `Backend.write`."""
        content = compact(tensors)
        fs.check_space(directory, sum([tensor.nbytes for tensor in content.values()]))
        with fs.NewFile(directory / self.FILE) as file:
            torch_save(content, file)
        return {self.FILE: file.hash.hexdigest()}

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare what the file describes with the tensors; see `Backend.check`."""
        self.read(directory, specs, "meta")

    def read(
        self, directory: Path, specs: Mapping[str, TensorSpec], device: str = "cpu"
    ) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        content = read_torch(directory / self.FILE, directory, device)
        if type(content) is not dict or any(type(x) is not torch.Tensor for x in content.values()):
            raise MalformedError(f"{self.FILE} holds more than tensors by name")
        if {name: TensorSpec.of(tensor) for name, tensor in content.items()} != dict(specs):
            raise MalformedError(f"{self.FILE} does not hold the tensors of its checkpoint")
        return content


def torch_save(content: object, file: fs.NewFile) -> None:
    """`torch.save` to an open file; the disk's own error is the one that is raised."""
    try:
        torch.save(content, file)
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


# -- Back ends by name.

_FACTORIES: dict[str, str | Callable[[], Backend]] = {
    "torch": TorchBackend,
    "torchsnapshot": "torchsnapshot:TorchSnapshotBackend",
    "native": "native:NativeBackend",
}
"""Factories by name: a file and a class, imported when used, or a registered object."""


def register_backend(name: str, factory: Callable[[], Backend]) -> None:
    """Make a back end known under a name.

    Args:
        name: The name users give in ``CKPT_BACKEND``. Checkpoints record it, so it must stay.
        factory: A callable without arguments, usually the class.

    Raises:
        ValueError: If the name is taken by another factory.
    """
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise ValueError(f"There is a checkpoint back end {name!r} already; choose another name.")


def backend_name(name: str | None = None) -> str:
    """Return ``name`` if given, else the value of ``CKPT_BACKEND``, else ``"torch"``."""
    return name or os.environ.get(VARIABLE) or "torch"


def known_backends() -> list[str]:
    """Return the names of all back ends."""
    return sorted(_FACTORIES)


def get_backend(name: str) -> Backend:
    """Return the back end of that name.

    Raises:
        CheckpointError: If there is none, or the package it needs is not installed.
    """
    factory = _FACTORIES.get(name)
    if isinstance(factory, str):
        factory = cast("Callable[[], Backend]", resolve_name(f"{__name__}.{factory}"))
    if factory is None:
        raise CheckpointError(
            f"There is no checkpoint back end {shown(name)} here: {VARIABLE} must be one of "
            f"{', '.join(known_backends())}, and a checkpoint is read with the one that wrote it."
        )
    return factory()
