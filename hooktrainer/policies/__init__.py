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

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .evaluation import Evaluation
    from .loaded import LoadedPolicy, load_policy
    from .play import Episode, Step, episode_seed, evaluate_policy, play_episodes
    from .saved import SavedPolicy, find_policy, list_policies

_MODULES = {
    "evaluation": ("Evaluation",),
    "loaded": ("LoadedPolicy", "load_policy"),
    "play": ("Episode", "Step", "episode_seed", "evaluate_policy", "play_episodes"),
    "saved": ("SavedPolicy", "find_policy", "list_policies"),
}

__all__ = [
    "Episode",
    "Evaluation",
    "LoadedPolicy",
    "SavedPolicy",
    "Step",
    "episode_seed",
    "evaluate_policy",
    "find_policy",
    "list_policies",
    "load_policy",
    "play_episodes",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
