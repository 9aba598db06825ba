"""A collector that collects nothing: batches drawn from a data set."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tensordict import NestedKey, TensorDict

from ...base.checks import check_count, share_equally
from ...errors import ConfigError, MissingPackageError, NotFoundError, StateMismatchError
from ..collector import CollectorBase
from .dataset import Dataset, read_dataset


class DatasetCollector(CollectorBase):
    """Hands a data set to `Trainer`, as batches of transitions drawn at random.

    Each batch is one optimizer step's, so use it with ``optim_steps_per_batch=1``. What the trainer
    counts as frames are the transitions it was trained on, ``batch_size`` a step::

        Trainer(
            collector=DatasetCollector(dataset, batch_size=256),
            total_frames=256 * 10_000,  # ten thousand optimizer steps
            optim_steps_per_batch=1,
            ...
        )

    Draws are with replacement, from a generator of its own, whose state is the collector's state.
    Several processes that share it draw the same, and each takes its rows of a batch.

    Args:
        dataset: The data set.
        batch_size: Transitions of a batch.
        keys: Entries that the loss reads; the others are left out. ``None`` for all.
        seed: Seed of the draws; `Trainer` sets its own.
        device: Where the batches are; the data set is moved there once.

    Raises:
        ConfigError: If the data set lacks one of ``keys``.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        keys: Sequence[NestedKey] | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        check_count("batch_size", batch_size)
        present = dataset.transitions.keys(include_nested=True)
        if missing := [key for key in keys or () if key not in present]:
            entries = sorted(map(str, dataset.transitions.keys(True, True)))
            raise ConfigError(f"the data set has no {missing}; it has {entries}.")
        self.batch_size = self.frames_per_batch = batch_size
        self._share = (0, 1)
        self._closed = False
        self._transitions = (
            dataset.transitions if keys is None else dataset.transitions.select(*keys)
        )
        if device is not None:
            self._transitions = self._transitions.to(device)
        self._generator = torch.Generator()
        self.set_seed(seed)

    def collect(self) -> TensorDict:
        """Draw a batch, ``[batch_size]``; a share has its part of the rows."""
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")
        number = len(self._transitions)
        index = torch.randint(number, (self.batch_size,), generator=self._generator)
        rank, world_size = self._share
        rows = self.batch_size // world_size
        if world_size > 1:
            index = index[rank * rows : (rank + 1) * rows]
        self.frames += rows
        return self._transitions[index]

    def check_shares(self, number: int) -> None:
        """Refuse a batch that cannot be shared equally."""
        share_equally(self.batch_size, number, "batch_size")

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one of ``world_size`` shares of the rows of every batch."""
        self.check_shares(world_size)
        self._share = (rank, world_size)
        self.frames_per_batch = self.batch_size // world_size

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Go on with the draws that follow those of the shares."""
        return dict(states[0])

    def shutdown(self) -> None:
        """Draw no more."""
        self._closed = True

    def set_seed(self, seed: int, static_seed: bool = False) -> None:
        """Start over with the draws of ``seed``."""
        self.seed = seed
        self._generator.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator, and how large the data set is."""
        return {"generator": self._generator.get_state(), "transitions": len(self._transitions)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the generator.

        Raises:
            StateMismatchError: If the data set is another one, as far as its size tells.
        """
        if state_dict["transitions"] != len(self._transitions):
            raise StateMismatchError(
                f"the saved run was trained on a data set of {state_dict['transitions']} "
                f"transitions; this one has {len(self._transitions)}."
            )
        self._generator.set_state(state_dict["generator"])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_generator": self._generator.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._generator = torch.Generator()
        self._generator.set_state(state["_generator"])


# -- Data sets by name: a directory, or one of Minari's.

_MINARI: Final = "minari:"


def load_dataset(source: str | os.PathLike[str]) -> Dataset:
    """Load a data set from a directory, or from Minari.

    Args:
        source: A directory that `Dataset.save` wrote, or ``"minari:<id>"`` for a data set of
            Minari, which is downloaded if it is not on this machine.

    Raises:
        NotFoundError: If there is no data set.
        ConfigError: If the files are not what ``dataset.json`` says.
        MissingPackageError: If Minari is wanted and not installed.
    """
    if isinstance(source, str) and source.startswith(_MINARI):
        return load_minari(source.removeprefix(_MINARI))
    return read_dataset(Path(source))


# -- Data sets of Minari, Farama's collection for offline training.


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
