"""Files on the disk: checkpoints, and the directories of runs.

Checkpoints are state trees, the back ends that store them, and the manager that commits and
resumes. Names are imported when they are used: to list runs and checkpoints needs no PyTorch.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .backends import Backend as Backend
    from .backends import MalformedError as MalformedError
    from .backends import get_backend as get_backend
    from .backends import known_backends as known_backends
    from .backends import register_backend as register_backend
    from .diff import compare_trees as compare_trees
    from .lookup import find as find
    from .lookup import find_runs as find_runs
    from .lookup import list_checkpoints as list_checkpoints
    from .lookup import run_of as run_of
    from .manager import CheckpointManager as CheckpointManager
    from .mirror import Mirror as Mirror
    from .mirror import fetch as fetch
    from .retention import All as All
    from .retention import Best as Best
    from .retention import EveryFrames as EveryFrames
    from .retention import EveryHours as EveryHours
    from .retention import Last as Last
    from .retention import MaxBytes as MaxBytes
    from .retention import Retention as Retention
    from .retention import Saved as Saved
    from .retention import Spread as Spread
    from .rng import rng_state as rng_state
    from .rng import set_rng_state as set_rng_state
    from .rng import undisturbed as undisturbed
    from .single_file import load_file as load_file
    from .single_file import save_file as save_file
    from .stored import Checkpoint as Checkpoint
    from .stored import FileRecord as FileRecord
    from .stored import Manifest as Manifest
    from .tree import TensorSpec as TensorSpec
    from .tree import flatten as flatten
    from .tree import unflatten as unflatten
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
