"""Back ends: how the tensors of a checkpoint are stored. ``CKPT_BACKEND`` names the one to use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol, cast

import torch

from ...base.untrusted import shown
from ...errors import CheckpointError
from ..tensor_spec import TensorSpec

VARIABLE = "CKPT_BACKEND"
ENTRY_POINTS = "hooktrainer.backends"


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
        """Compare what the files say with each other and with their sizes.

        It takes no memory for the tensors.

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
        """Read all tensors from a directory that `check` has accepted; arguments as there.

        Returns:
            New contiguous CPU tensors by name, each with its own memory.
        """
        ...


_FACTORIES: dict[str, str | Callable[[], Backend]] = {
    "torch": "torch_file:TorchBackend",
    "torchsnapshot": "torchsnapshot:TorchSnapshotBackend",
    "native": "native:NativeBackend",
}
"""Back ends by name: the file and the class, imported when it is used, or what was registered."""


def register_backend(name: str, factory: Callable[[], Backend]) -> None:
    """Make a back end known under a name.

    A package can do the same without being imported, by an entry point of the group
    ``hooktrainer.backends``.

    Args:
        name: The name users give in ``CKPT_BACKEND``. Checkpoints record it, so it must stay.
        factory: A callable without arguments, usually the class.

    Raises:
        ValueError: If the name is taken by another factory.
    """
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise ValueError(f"There is a checkpoint back end {name!r} already; choose another name.")


def backend_name(name: str | None = None) -> str:
    """Return ``name`` if given, else what ``CKPT_BACKEND`` says, else ``"torch"``."""
    return name or os.environ.get(VARIABLE) or "torch"


def known_backends() -> list[str]:
    """Return the names of all back ends."""
    return sorted({*_FACTORIES, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def get_backend(name: str) -> Backend:
    """Return the back end of that name.

    Raises:
        CheckpointError: If there is none, or the package it needs is not installed.
    """
    factory = _FACTORIES.get(name)
    if isinstance(factory, str):
        factory = cast("Callable[[], Backend]", resolve_name(f"{__name__}.{factory}"))
    for point in () if factory else entry_points(group=ENTRY_POINTS, name=name):
        try:
            factory = cast("Callable[[], Backend]", point.load())
        except Exception as error:  # whatever importing a package raises
            package = f" of {point.dist.name}" if point.dist else ""
            raise CheckpointError(
                f"The checkpoint back end {point.name!r}, {point.value}{package}, cannot be "
                f"imported: {type(error).__name__}: {error}."
            ) from error
    if factory is None:
        raise CheckpointError(
            f"There is no checkpoint back end {shown(name)} here: {VARIABLE} must be one of "
            f"{', '.join(known_backends())}, and a checkpoint is read with the one that wrote it."
        )
    return factory()
