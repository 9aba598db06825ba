"""hooktrainer: a hook-based trainer for reinforcement learning in PyTorch.

Names are imported at their first use, so that the command line's help does not load PyTorch.
"""

from typing import TYPE_CHECKING

from .base.lazy import attach
from .base.version import __version__ as __version__

if TYPE_CHECKING:
    from . import algorithms as algorithms
    from .base.kernels import pin_kernels as pin_kernels
    from .collect import OverlappedCollector as OverlappedCollector
    from .collect import VectorCollector as VectorCollector
    from .data import DataCollector as DataCollector
    from .errors import CheckpointError as CheckpointError
    from .errors import ConfigError as ConfigError
    from .errors import HookError as HookError
    from .errors import NonFiniteError as NonFiniteError
    from .errors import StateMismatchError as StateMismatchError
    from .hooks import *  # noqa: F403
    from .hooks.plugins import available_hooks as available_hooks
    from .log import generate_exp_name as generate_exp_name
    from .loop.cadence import Every as Every
    from .loop.hook import TrainerHookBase as TrainerHookBase
    from .loop.hook_points import HOOK_POINTS as HOOK_POINTS
    from .loop.hook_points import HookPoint as HookPoint
    from .loop.hook_points import HookPointName as HookPointName
    from .loop.metrics import Latest as Latest
    from .loop.metrics import Samples as Samples
    from .policies import LoadedPolicy as LoadedPolicy
    from .policies import SavedPolicy as SavedPolicy
    from .policies import find_policy as find_policy
    from .policies import list_policies as list_policies
    from .policies import load_policy as load_policy
    from .policies import play_episodes as play_episodes
    from .run.get_logger import get_logger as get_logger
    from .run.session import Session as Session
    from .show.run_view import view as view
    from .store.run_dir import RunDir as RunDir
    from .trainer import Trainer as Trainer
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
