"""Intermediate policies: saved while a run trains, and used without any training code.

A run keeps them in ``<run>/policies/step_<12 digits of frames>/``, and ``latest`` leads to the
newest. Each directory is complete or absent, and holds

- ``policy.safetensors``: the policy as a program of PyTorch's basic operators, with its weights;
  there is no code in it, and nothing that it could hold is executed;
- ``policy.json``: frames, seconds of training, environment, observations and actions, versions,
  size and hash of the file, and, once it was played, the evaluation; with a checksum of its own.

`hooktrainer.PolicySnapshot` writes them. Nothing here imports the trainer, TorchRL or TensorDict;
Gymnasium is imported when an environment is made, and PyTorch when a policy is loaded: to list what
there is needs neither.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .loaded import LoadedPolicy as LoadedPolicy
    from .loaded import load_policy as load_policy
    from .play import Episode as Episode
    from .play import Step as Step
    from .play import episode_seed as episode_seed
    from .play import evaluate_policy as evaluate_policy
    from .play import play_episodes as play_episodes
    from .saved import Evaluation as Evaluation
    from .saved import SavedPolicy as SavedPolicy
    from .saved import find_policy as find_policy
    from .saved import list_policies as list_policies
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
