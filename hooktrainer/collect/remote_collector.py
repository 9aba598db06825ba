"""`RemoteCollector`: the base class of collectors that let copies of another one collect."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from ..base.tensordicts import count_valid
from .adapt import adapt
from .collector import Collector

_FACTS = (
    *("policy", "num_envs", "frames_per_batch", "total_frames", "init_random_frames"),
    *("frame_skip", "device", "unit", "epoch", "ended"),
)
VERSION = ("collector", "policy_version")
"""Entry of a batch: the number of batches the learner had trained on when it sent the weights."""


Status = dict[str, Any]
"""Attributes of a collector that a batch changes, by name."""
Collected = tuple[TensorDictBase | None, Status]
"""A batch, or ``None`` if there are no more, and the status after it."""


def status_of(collector: Collector) -> Status:
    """The present status of a collector."""
    log = dict(collector.world_log)
    return {"epoch": collector.epoch, "ended": collector.ended, "world_log": log}


def collected(collector: Collector, version: int) -> Collected:
    """Collect the next batch with weights of this version."""
    try:
        batch = collector.collect()
    except StopIteration:
        return None, status_of(collector)
    versions = torch.full(batch.batch_size, version, dtype=torch.int64, device=batch.device)
    return batch.set(VERSION, versions), status_of(collector)


def joined(shares: Sequence[Status]) -> Status:
    """The status of a collector whose equal shares have these."""
    logs = [share["world_log"] for share in shares]
    names = dict.fromkeys(name for log in logs for name in log)
    log = {n: torch.stack([log[n] for log in logs if n in log]).nanmean() for n in names}
    return {**shares[0], "world_log": log}


class RemoteCollector(Collector):
    """Has copies of a collector, which follow the learner's policy, collect elsewhere.

    Each worker serves the calls of a `CollectorServer`; together they make a batch.

    Attributes:
        depth: Number of batches collected ahead.
        policy_age: Number of updates by which the last batch's policy was older.
    """

    def __init__(self, collector: Any, depth: int) -> None:
        self.wrapped = collector
        self._collector = adapt(collector)
        self.depth = depth
        self.policy_age = 0
        self._workers: list[Any] = []
        self._ready: deque[tuple[TensorDictBase, Status]] = deque()
        self._under_way = 0  # batches
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
        self._collector.register(trainer)
        self.register_alone(trainer)

    def register_alone(self, trainer: Any) -> None:
        """Register with a trainer that `wrapped` is registered with."""
        trainer.register_op("pre_steps_log", self.metrics)

    @property
    def ahead(self) -> int:
        """Number of batches that are ready or in progress."""
        return len(self._ready) + self._under_way

    def start(self) -> None:
        with self.timing.phase("start"):
            self._start()

    def collect(self) -> TensorDictBase:
        self._check_open()
        batch, status = self._take()
        self._follow(status)
        if batch is None:
            raise StopIteration
        self.policy_age = self._updates - int(batch[VERSION].flatten()[0])
        self._batch_frames = count_valid(batch)
        self.frames += self._batch_frames
        while self.ahead < self.depth:
            frames = self.frames + self.ahead * self._batch_frames
            if 0 <= self.total_frames <= frames:
                break
            self._request()
        self._updates += 1
        return batch

    def _follow(self, status: Status) -> None:
        vars(self).update(status)
        self._collector.world_log = self.world_log  # which it logs if it is registered

    def _take(self) -> Collected:
        """Wait for the next batch."""
        if not self.ahead:
            self._request()
        return self._ready.popleft() if self._ready else self._receive()

    def _receive(self) -> Collected:
        """Wait for a batch in progress."""
        self._under_way -= 1  # an error is an answer too
        shares, statuses = [], []
        for worker, answer in zip(self._workers, self._answers(), strict=True):
            (batch, status), times, spans = answer
            statuses.append(status)
            if batch is not None:
                shares.append(batch)
            for name, seconds in times.items():
                self.timing.totals[f"worker/{name}"] += seconds / len(self._workers)
            if spans and self.timing.trace is not None:
                self.timing.trace.extend(spans, thread=worker.name, pid=worker.pid)
        if len(shares) < len(statuses):
            return None, joined(statuses)
        return shares[0] if len(shares) == 1 else self._collector.join(shares), joined(statuses)

    def _ask_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method in each worker, and return its answers."""
        for worker in self._workers:
            worker.call(method, *args)
        return self._answers()

    def _answers(self) -> list[Any]:
        return [worker.answer() for worker in self._workers]

    def _wait(self) -> None:
        """Wait for the batches in progress, which are then ready."""
        while self._under_way:
            batch, status = self._receive()
            if batch is not None:  # else the next request has the same answer
                self._ready.append((batch, status))

    def _statuses(self) -> list[Status]:
        """The status after the last batch, and those after the batches that are ready."""
        return [status_of(self), *(status for _, status in self._ready)]

    def _restore(
        self, batches: Sequence[TensorDictBase], statuses: Sequence[Status] | None, status: Status
    ) -> None:
        """Restore the batches that are ready, and `_statuses` if known; else all are ``status``."""
        now, *ahead = statuses or [status] * (1 + len(batches))
        self._follow(now)
        self._ready.extend(zip(batches, ahead, strict=True))

    def _discard(self) -> None:
        self._wait()
        self._ready.clear()

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        if policy_or_weights is not None:
            self._collector.update_policy_weights_(policy_or_weights)

    @abstractmethod
    def _start(self) -> None:
        """Begin to collect elsewhere, if that was not begun."""

    @abstractmethod
    def _request(self) -> None:
        """Have the workers collect another batch."""
