"""Checkpoints: state trees, the back ends that store them, the manager that commits and resumes."""

from __future__ import annotations

from .backends import Backend, TensorSpec, known_backends, register_backend
from .find import find, list_checkpoints
from .manager import CheckpointManager
from .manifest import Manifest
from .retention import All, Best, EveryFrames, EveryHours, Last, MaxBytes, Retention
from .rng import rng_state, set_rng_state
from .single_file import load_file, save_file
from .stored import Checkpoint
from .tree import flatten, unflatten

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
