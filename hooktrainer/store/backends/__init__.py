"""Back ends: how the tensors of a checkpoint are stored. ``CKPT_BACKEND`` names the one to use."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import cast

from ...base.untrusted import shown
from ...errors import CheckpointError
from .base import Backend

__all__ = ["Backend", "backend_name", "get_backend", "known_backends", "register_backend"]

VARIABLE = "CKPT_BACKEND"
ENTRY_POINTS = "hooktrainer.backends"


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
    if factory is None:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            factory = _load(point)
    if factory is None:
        raise CheckpointError(
            f"There is no checkpoint back end {shown(name)} here: {VARIABLE} must be one of "
            f"{', '.join(known_backends())}, and a checkpoint is read with the one that wrote it."
        )
    return factory()


def _load(point: EntryPoint) -> Callable[[], Backend]:
    try:
        factory: Callable[[], Backend] = point.load()
    except Exception as error:  # whatever importing a package raises
        package = f" of {point.dist.name}" if point.dist else ""
        raise CheckpointError(
            f"The checkpoint back end {point.name!r}, {point.value}{package}, cannot be imported: "
            f"{type(error).__name__}: {error}."
        ) from error
    return factory
