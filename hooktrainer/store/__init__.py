"""What is kept on the disk: checkpoints, and the directories of runs.

Checkpoints are state trees, the back ends that store them, and the manager that commits and
resumes. Names are imported when they are used: to list runs and checkpoints needs no PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends import Backend, TensorSpec, known_backends, register_backend
    from .lookup import find, list_checkpoints
    from .manager import CheckpointManager
    from .manifest import Manifest
    from .retention import All, Best, EveryFrames, EveryHours, Last, MaxBytes, Retention
    from .rng import rng_state, set_rng_state
    from .single_file import load_file, save_file
    from .stored import Checkpoint
    from .tree import flatten, unflatten

_MODULES = {
    "backends": ("Backend", "TensorSpec", "known_backends", "register_backend"),
    "lookup": ("find", "list_checkpoints"),
    "manager": ("CheckpointManager",),
    "manifest": ("Manifest",),
    "retention": ("All", "Best", "EveryFrames", "EveryHours", "Last", "MaxBytes", "Retention"),
    "rng": ("rng_state", "set_rng_state"),
    "single_file": ("load_file", "save_file"),
    "stored": ("Checkpoint",),
    "tree": ("flatten", "unflatten"),
}

__all__ = [
    "All",
    "Backend",
    "Best",
    "Checkpoint",
    "CheckpointManager",
    "EveryFrames",
    "EveryHours",
    "Last",
    "Manifest",
    "MaxBytes",
    "Retention",
    "TensorSpec",
    "find",
    "flatten",
    "known_backends",
    "list_checkpoints",
    "load_file",
    "register_backend",
    "rng_state",
    "save_file",
    "set_rng_state",
    "unflatten",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
