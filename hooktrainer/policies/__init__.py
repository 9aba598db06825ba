"""Saved policies: written while a run trains, used without any training code.

A run keeps them in ``<run>/policies/step_<12 digits of frames>/``. Each directory is complete or
absent, and holds

- ``policy.safetensors``: the policy as a program of PyTorch's basic operators, with its weights. It
  contains no code, and nothing in it is executed;
- ``policy.json``: frames, seconds of training, environment, spaces, versions, the file's size and
  hash, and the evaluation; sealed by a checksum.

`hooktrainer.PolicySnapshot` writes them. Reading imports neither the trainer nor TorchRL. Gymnasium
is imported when an environment is made, PyTorch when a policy is loaded; listing needs neither.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .contract import Contract as Contract
    from .environment import Environment as Environment
    from .evaluation import evaluate_run as evaluate_run
    from .exported import export_policy as export_policy
    from .load import load_policy as load_policy
    from .loaded import LoadedPolicy as LoadedPolicy
    from .module import PolicyModule as PolicyModule
    from .module import copy_weights as copy_weights
    from .play import Episode as Episode
    from .play import Step as Step
    from .play import episode_seed as episode_seed
    from .play import evaluate_policy as evaluate_policy
    from .play import play_episodes as play_episodes
    from .recorder import PolicyRecorder as PolicyRecorder
    from .saved import Evaluation as Evaluation
    from .saved import SavedPolicy as SavedPolicy
    from .saved import find_policy as find_policy
    from .saved import list_policies as list_policies
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
