"""Write everything a run collects to a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from ...errors import HookError, TakenError
from ...loop.hook import TrainerHookBase
from .dataset import Dataset

if TYPE_CHECKING:
    from ...loop.loop import Loop


class RecordDataset(TrainerHookBase):
    """Keeps what is collected and, at the end of the run, writes it to a directory.

    The transitions of each environment lie one behind another, and its last one is marked as
    truncated. What the whole episodes returned is written down beside them, and logged in the end
    as ``data/return``. Everything is held in memory and is part of the checkpoints.

    Args:
        path: The directory to write; there must be nothing yet.
        env: Id of the environment.
        description: How the data came about, for people.

    Attributes:
        dataset: What was written; ``None`` before the end.
    """

    def __init__(self, path: str | Path, *, env: str | None = None, description: str = "") -> None:
        self.path = Path(path)
        self.env = env
        self.description = description
        self.dataset: Dataset | None = None
        self._batches: list[TensorDictBase] = []

    def __call__(self, batch: TensorDictBase) -> None:
        """Keep ``batch``, ``[num_envs, time]``."""
        following = batch["next"].select(
            "observation", "reward", "terminated", "truncated", "done", "episode_reward"
        )
        kept = batch.select("observation", "action")
        self._batches.append(kept.set("next", following).cpu())

    def on_train_start(self, trainer: Loop) -> None:
        """Refuse a place that is taken, before anything is collected.

        Raises:
            TakenError: If it is, and the run is not a resumed one.
        """
        if self.path.exists() and not trainer.collected_frames:
            raise TakenError(f"{self.path} exists already: remove it, or choose another place.")

    def on_train_end(self, trainer: Loop) -> None:
        """Write the data set and log what its episodes returned.

        Raises:
            HookError: If nothing was collected.
        """
        if not self._batches:
            raise HookError("RecordDataset: nothing was collected, so there is nothing to write.")
        together = self._joined()
        following = together["next"]
        returns = following["episode_reward"][following["done"]].tolist()
        following = following.select("observation", "reward", "terminated", "truncated").clone()
        following["truncated"][:, -1] |= ~following["terminated"][:, -1]
        transitions = together.set("next", following).reshape(-1)
        self.dataset = Dataset(transitions, returns, self.env, self.description)
        self.dataset.save(self.path, overwrite=True)
        trainer.log(self.dataset.log())

    def _joined(self) -> TensorDict:
        """Everything so far, ``[num_envs, time]``."""
        if len(self._batches) > 1:
            self._batches = [torch.cat(self._batches, 1)]
        return self._batches[0].copy()

    def state_dict(self) -> dict[str, Any]:
        """Return everything collected so far."""
        return {"transitions": self._joined() if self._batches else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what was collected."""
        saved = state_dict["transitions"]
        self._batches = [] if saved is None else [saved]

    def register(self, trainer: Loop, name: str = "record_dataset") -> None:
        """Register at ``pre_steps_log``, where batches are as they were collected."""
        trainer.register_module(name, self)
        trainer.register_op("pre_steps_log", self)
