"""`RemoteCollector`: what all collectors have in common that let copies of another one collect."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from tensordict import TensorDictBase

from .adapt import adapt
from .collector import Collector

_FACTS = (
    *("policy", "num_envs", "frames_per_batch", "total_frames", "init_random_frames"),
    *("frame_skip", "device"),
)
VERSION = ("collector", "policy_version")
"""Entry of a batch: the number of batches the learner had trained on when it sent the weights."""


def stamped(batch: TensorDictBase, version: int) -> TensorDictBase:
    """The batch, with the version of the weights that collected it."""
    versions = torch.full(batch.batch_size, version, dtype=torch.int64, device=batch.device)
    return batch.set(VERSION, versions)


def version_of(batch: TensorDictBase) -> int:
    """Version of the weights that collected a batch."""
    return int(batch.get(VERSION).flatten()[0])


class RemoteCollector(Collector):
    """Has copies of a collector, which follow the learner's policy, collect elsewhere."""

    def __init__(self, collector: Any) -> None:
        self.wrapped = collector
        self._collector = adapt(collector)
        self.policy_age = 0
        self._updates = 0  # batches handed out, which is how often the learner trained
        self._batch_frames = 0  # not known before the first
        self.seed = self._collector.seed
        self.resumes = self._collector.resumes
        self._describe()

    def _describe(self) -> None:
        for name in _FACTS:
            setattr(self, name, getattr(self._collector, name))

    @property
    def unsaved(self) -> str | None:
        return self._collector.unsaved

    def metrics(self, batch: TensorDictBase) -> dict[str, Any]:
        return {"data/age": self.policy_age}

    def register(self, trainer: Any) -> None:
        trainer.register_op("pre_steps_log", self.metrics)

    def start(self) -> None:
        with self.timing.phase("start"):
            self._start()

    def collect(self) -> TensorDictBase:
        self._check_open()
        batch = self._take()
        self.policy_age = self._updates - version_of(batch)
        self._batch_frames = batch.numel()
        self.frames += self._batch_frames
        self._ask()
        self._updates += 1
        return batch

    def _wants_more(self, ahead: int = 0) -> bool:
        """Whether another batch is needed when so many are ahead."""
        frames = self.frames + ahead * self._batch_frames
        return self.total_frames < 0 or frames < self.total_frames

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        if policy_or_weights is not None:
            self._collector.update_policy_weights_(policy_or_weights)

    @abstractmethod
    def _start(self) -> None:
        """Begin to collect elsewhere, if that was not begun."""

    @abstractmethod
    def _take(self) -> TensorDictBase:
        """Wait for the next batch."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask for the batches that follow."""
