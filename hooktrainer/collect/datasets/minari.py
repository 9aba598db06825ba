"""Data sets of Minari, Farama's collection for offline training."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from ...errors import ConfigError, MissingPackageError, NotFoundError
from .dataset import Dataset


def load_minari(dataset_id: str) -> Dataset:
    """Load a data set of Minari, downloading it if it is not on this machine.

    Args:
        dataset_id: Such as ``"mujoco/halfcheetah/medium-v0"``.

    Raises:
        ModuleNotFoundError: If Minari is not installed.
        NotFoundError: If there is no such data set.
        ConfigError: If its observations or actions are not arrays.
    """
    missing = (
        f"the data set minari:{dataset_id} needs a package that is not installed: "
        "pip install 'hooktrainer[minari]'"
    )
    try:
        import minari
    except ModuleNotFoundError as error:
        raise MissingPackageError(missing) from error
    local = minari.list_local_datasets()
    try:
        source = minari.load_dataset(dataset_id, download=dataset_id not in local)
    except ImportError as error:
        raise MissingPackageError(f"{missing} ({error})") from error
    except Exception as error:
        near = difflib.get_close_matches(dataset_id, local, n=3, cutoff=0.4)
        here = f" On this machine, near: {', '.join(near)}." if near else ""
        raise NotFoundError(
            f"Minari has no data set {dataset_id!r}, or it cannot be downloaded: {error}.{here}"
        ) from error
    episodes, returns = [], []
    for episode in source.iterate_episodes():
        episodes.append(_transitions(dataset_id, episode))
        returns.append(float(np.sum(episode.rewards)))
    env = source.env_spec.id if source.env_spec is not None else None
    return Dataset(torch.cat(episodes), returns, env, f"minari:{dataset_id}")


def _transitions(dataset_id: str, episode: Any) -> TensorDict:
    """The transitions of one episode, ``[steps]``."""
    for name in ("observations", "actions"):
        if not isinstance(getattr(episode, name), np.ndarray):
            raise ConfigError(
                f"minari:{dataset_id}: its {name} are a {type(getattr(episode, name)).__name__}, "
                "not an array; load it with minari and make a Dataset of it."
            )
    observation = _tensor(episode.observations)
    steps = len(episode.rewards)
    truncated = torch.from_numpy(episode.truncations.astype(bool)).clone()
    terminated = torch.from_numpy(episode.terminations.astype(bool))
    truncated[-1] |= ~terminated[-1]  # what is stored behind it belongs to another episode
    following = {
        "observation": observation[1:],
        "reward": _tensor(episode.rewards).float().unsqueeze(-1),
        "terminated": terminated.unsqueeze(-1),
        "truncated": truncated.unsqueeze(-1),
    }
    return TensorDict(
        {
            "observation": observation[:-1],
            "action": _tensor(episode.actions),
            "next": TensorDict(following, batch_size=[steps]),
        },
        batch_size=[steps],
    )


def _tensor(array: Any) -> torch.Tensor:
    tensor = torch.from_numpy(np.asarray(array))
    return tensor.float() if tensor.dtype is torch.float64 else tensor
