"""`Dataset`: transitions to train on offline, and the plain file they are kept in."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from ..base.fs import write_atomically
from ..base.lazy import import_optional
from ..base.untrusted import shown
from ..collect.spaces import RESERVED
from ..errors import (
    ConfigError,
    HookError,
    NotFoundError,
    TakenError,
)
from ..loop.hook import TrainerHookBase
from ..loop.metrics import Latest
from ..objectives.multi_step import multi_step_return, multi_step_rows

if TYPE_CHECKING:
    from ..loop.loop import Loop

_FORMAT: Final = "hooktrainer-dataset 4"
_MINARI: Final = "minari:"


@dataclass(eq=False, repr=False)
class Dataset:
    """Transitions, in the order of their trajectories, and what the whole episodes returned.

    On disk it is a file of safetensors: a tensor for each entry, such as ``observation`` and
    ``next/reward``, transitions first; and in the metadata ``format``, ``env``, ``description``
    and, as JSON, ``returns``.

    Args:
        transitions: ``[n]``, in TorchRL's layout: ``"observation"``, ``"action"`` and, under
            ``"next"``, ``"observation"``, ``"reward"``, ``"terminated"``, ``"truncated"``. A
            transition is followed by the next one unless it is terminated or truncated.
        returns: Sums of rewards of the whole episodes.
        env: Id of the environment.
        description: How the data came about, for people.

    Raises:
        ConfigError: If ``transitions`` does not have one dimension, or is empty.
    """

    transitions: TensorDict
    returns: Sequence[float] = ()
    env: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        if self.transitions.ndim != 1 or not len(self):
            shape = list(self.transitions.shape)
            raise ConfigError(f"a data set needs transitions of shape [n], n > 0, not {shape}.")

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns)) if self.returns else float("nan")

    def select(self, keys: Sequence[NestedKey]) -> TensorDict:
        """Return the transitions with these entries alone, such as those that a loss reads.

        Raises:
            ConfigError: If the data set lacks one of them.
        """
        present = self.transitions.keys(include_nested=True)
        if missing := [key for key in keys if key not in present]:
            entries = sorted(map(str, self.transitions.keys(True, True)))
            raise ConfigError(f"the data set has no {missing}; it has {entries}.")
        return self.transitions.select(*keys)

    def multi_step(self, n_steps: int, *, gamma: float = 0.99) -> Dataset:
        """Return a data set of transitions of ``n_steps`` steps, one that begins with each.

        They are those that `hooktrainer.MultiStepReplay` stores, with ``"steps_to_next_obs"``.
        """
        data = self.transitions["next"]
        ends = (data["terminated"] | data["truncated"]).flatten()
        total, number = multi_step_return(data["reward"].flatten(), ends, n_steps, gamma)
        following = data[torch.arange(len(self)) + number - 1]
        rows = multi_step_rows(self.transitions.exclude("next"), following, total, number)
        return replace(self, transitions=rows)

    def log(self, batch: TensorDictBase | None = None) -> dict[str, Any]:
        """Return the metrics ``data/return`` and ``data/episodes``: an op for a log point."""
        out: dict[str, Any] = {"data/episodes": Latest(len(self.returns))}
        if self.returns:
            out["data/return"] = Latest(self.mean_return)
        return out

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the data set; it appears complete or not at all.

        Raises:
            TakenError: If something is there already.
        """
        from safetensors.torch import save

        path = Path(path)
        if path.exists() and not (overwrite and path.is_file()):
            raise TakenError(f"{path} exists already: remove it, or choose another place.")
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = {
            key if isinstance(key, str) else "/".join(key): value.cpu().clone(
                memory_format=torch.contiguous_format
            )
            for key, value in self.transitions.items(include_nested=True, leaves_only=True)
        }
        about = {"format": _FORMAT, "env": self.env or "", "description": self.description}
        about["returns"] = json.dumps(list(self.returns))
        write_atomically(path, save(entries, about))
        return path


def load_dataset(source: str | os.PathLike[str]) -> Dataset:
    """Load a data set from a file, or from Minari.

    Args:
        source: A file that `Dataset.save` wrote, or ``"minari:<id>"`` for a data set of Minari,
            which is downloaded if it is not on this machine.

    Raises:
        NotFoundError: If there is no data set.
        ConfigError: If the file holds something else, or Minari's observations or actions are not
            arrays.
        MissingPackageError: If Minari is wanted and not installed.
    """
    if isinstance(source, str) and source.startswith(_MINARI):
        return _load_minari(source.removeprefix(_MINARI))
    from safetensors import safe_open

    path = Path(source)
    if not path.is_file():
        raise NotFoundError(
            f"{path} is no data set: it is no file. RecordDataset writes one, as "
            "recipes/collect_pendulum.py shows; 'minari:<id>' names one of Minari's."
        )
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.get("format") != _FORMAT:
            raise ValueError(f"its format is {shown(about.get('format'))}, not {_FORMAT!r}")
        returns = [float(one) for one in json.loads(about["returns"])]
        number = len(entries["action"])
        keys = {tuple(name.split("/")): value for name, value in entries.items()}
        transitions = TensorDict(keys, batch_size=[number])
    except Exception as error:  # whatever a malformed file leads to
        raise ConfigError(f"{path} holds no data set: {shown(str(error))}.") from error
    return Dataset(transitions, returns, about.get("env") or None, about.get("description", ""))


# -- Minari.


def _load_minari(dataset_id: str) -> Dataset:
    minari = import_optional("minari", f"the data set minari:{dataset_id}", "hooktrainer[minari]")
    try:
        local = minari.list_local_datasets()
        source = minari.load_dataset(dataset_id, download=dataset_id not in local)
    except Exception as error:
        raise NotFoundError(
            f"Minari has no data set {dataset_id!r}, or it cannot be downloaded: {error}"
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
    truncated[-1] |= ~terminated[-1]  # what is stored after it belongs to another episode
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


class RecordDataset(TrainerHookBase):
    """Keeps what is collected and, at the end of the run, writes it to a file.

    The transitions of each environment follow one another, and its last one is marked as truncated.
    The returns of whole episodes are written with them, and their mean is logged as
    ``data/return``. Everything is held in memory and is part of the checkpoints.

    Args:
        path: The file to write; it must not exist yet.
        env: Id of the environment.
        description: How the data came about, for people.

    Attributes:
        dataset: What was written; ``None`` before the end.
    """

    at = "pre_steps_log"  # where batches are as they were collected

    def __init__(self, path: str | Path, *, env: str | None = None, description: str = "") -> None:
        self.path = Path(path)
        self.env = env
        self.description = description
        self.dataset: Dataset | None = None
        self._batches: list[TensorDictBase] = []

    def __call__(self, batch: TensorDictBase) -> None:
        """Keep ``batch``, ``[num_envs, time]``."""
        following = batch["next"]
        there = batch.exclude(*RESERVED, "memory").keys(True, True)
        observed = [key for key in following.keys(True, True) if key in there]
        following = following.select(
            *observed, "reward", "terminated", "truncated", "done", "episode_reward"
        )
        kept = batch.select(*observed, "action")
        self._batches.append(kept.set("next", following).cpu())

    def on_train_start(self, trainer: Loop) -> None:
        """Refuse a place that is taken, unless the run is a resumed one."""
        if self.path.exists() and not trainer.collected_frames:
            raise TakenError(f"{self.path} exists already: remove it, or choose another place.")

    def on_train_end(self, trainer: Loop) -> None:
        """Write the data set and log what its episodes returned."""
        if not self._batches:
            raise HookError("RecordDataset: nothing was collected, so there is nothing to write.")
        together = self._joined()
        following = together["next"]
        returns = following["episode_reward"][following["done"]].tolist()
        following = following.exclude("done", "episode_reward").clone()
        following["truncated"][:, -1] |= ~following["terminated"][:, -1]
        transitions = together.set("next", following).reshape(-1)
        self.dataset = Dataset(transitions, returns, self.env, self.description)
        self.dataset.save(self.path, overwrite=True)
        trainer.log(self.dataset.log())

    def _joined(self) -> TensorDict:
        if len(self._batches) > 1:
            self._batches = [torch.cat(self._batches, 1)]
        return self._batches[0].copy()

    def state_dict(self) -> dict[str, Any]:
        return {"transitions": self._joined() if self._batches else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["transitions"]
        self._batches = [] if saved is None else [saved]
