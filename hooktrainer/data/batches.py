"""The batches of a data set from any position on: by index, or from what can only be iterated."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDictBase
from torch.utils.data import BatchSampler, DataLoader

from ..base.checks import share_equally
from ..collect.collector import Resumes, no_shard
from ..errors import ConfigError, StateMismatchError
from ..loop.stateful import has_state
from ..store.rng import seed_all, undisturbed
from .samples import Fetch, Names, as_batch


class Position(NamedTuple):
    """Epochs completed, and batches of the next one."""

    epoch: int = 0
    batch: int = 0


OF_WORKERS = (
    *("num_workers", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor"),
    "multiprocessing_context",
)
"""Arguments of a `DataLoader` that are about its processes."""
Batches = Iterator[tuple[Position, TensorDictBase]]
"""Batches, each with the position after it."""


# -- The order of samples.


class Order:
    """The indices of the batches of every epoch: one order, or a permutation for each epoch."""

    def __init__(self, samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> None:
        batches, rest = divmod(samples, batch_size)
        self.samples = samples
        self.shuffle = shuffle
        self.batch_size = batch_size
        self.epoch_batches = batches + (rest > 0 and not drop_last)
        self.epoch_samples = batches * batch_size if drop_last else samples
        self.sizes = {batch_size, self.epoch_samples % batch_size} - {0}

    def since(self, seed: int, start: int) -> Iterator[Any]:
        """Yield indices without end, from the batch of this number on."""
        first, skipped = divmod(start, self.epoch_batches)
        for epoch in count(first):
            yield from self.of_epoch(seed, epoch)[skipped if epoch == first else 0 :]

    def of_epoch(self, seed: int, epoch: int) -> Any:
        """Return the indices of the batches of an epoch."""
        indices = torch.arange(self.samples)
        if self.shuffle:
            drawn = torch.Generator().manual_seed(_entropy(seed, epoch))
            indices = torch.randperm(self.samples, generator=drawn)
        return torch.split(indices, self.batch_size)[: self.epoch_batches]


class Draws(Order):
    """Indices that are drawn from all samples, with replacement."""

    def __init__(self, samples: int, batch_size: int) -> None:
        super().__init__(samples, batch_size, shuffle=True, drop_last=False)
        self.epoch_samples = self.epoch_batches * batch_size
        self.sizes = {batch_size}

    def since(self, seed: int, start: int) -> Iterator[Any]:
        drawn, size = torch.Generator().manual_seed(seed), (self.batch_size,)
        every = (torch.randint(self.samples, size, generator=drawn) for _ in count())
        return islice(every, start, None)


class Sampled(Order):
    """The indices that the sampler of a loader yields, with seeded generators."""

    def __init__(self, loader: Any) -> None:
        sampler, size, drop_last = loader.batch_sampler, 0, False
        if type(sampler) is BatchSampler:  # others may make batches of any size
            size, drop_last = sampler.batch_size, sampler.drop_last
        number = len(getattr(sampler, "sampler", loader.dataset))
        super().__init__(number, size or number or 1, shuffle=True, drop_last=drop_last)
        self.sampler = sampler
        self.epoch_batches = len(sampler)
        if not size:
            self.epoch_samples, self.sizes = -1, set()

    def of_epoch(self, seed: int, epoch: int) -> Any:
        for sampler in (self.sampler, getattr(self.sampler, "sampler", None)):
            _set_epoch(sampler, epoch)
            if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
                generator.manual_seed(_entropy(seed, epoch))
        with undisturbed():
            seed_all((seed, epoch))
            return list(self.sampler)


# -- Sources of batches.


class Indexed:
    """Batches of a data set that has samples by index.

    Attributes:
        resumes: As for `hooktrainer.collect.Collector`.
        epoch_batches: Batches of an epoch; ``None`` if unknown.
        epoch_samples: Samples of an epoch; -1 if unknown.
    """

    resumes: Resumes = "exactly"
    unsaved: str | None = None

    def __init__(self, fetch: Fetch, order: Order, options: Mapping[str, Any]) -> None:
        self.fetch, self.order, self.options = fetch, order, options
        self.epoch_batches: int | None = order.epoch_batches
        self.epoch_samples = order.epoch_samples
        self._share = (0, 1)

    def facts(self) -> dict[str, Any]:
        """Describe the data: a run cannot be resumed with other facts."""
        data = self.fetch.data
        facts = {"samples": len(data), "batch_size": self.order.batch_size}
        facts["batches of an epoch"] = self.order.epoch_batches
        return facts | {"fingerprint": getattr(data, "_fingerprint", None)}

    def check_shares(self, number: int) -> None:
        """Refuse to divide batches among processes if they cannot be divided equally."""
        for size in sorted(self.order.sizes, reverse=True):
            if size < self.order.batch_size and size % number:
                raise ConfigError(
                    f"the last batch of an epoch has {size} samples, which {number} processes "
                    "cannot share equally: pass drop_last=True."
                )
            share_equally(size, number, "batch_size")

    def shard(self, rank: int, world_size: int) -> None:
        """Keep this process's rows of every batch."""
        self._share = (rank, world_size)

    def start(self, seed: int, position: Position, epochs: int | None) -> Batches:
        """Yield the batches after a position, until the epochs are over."""
        assert self.epoch_batches is not None
        first = position.epoch * self.epoch_batches + position.batch
        last = None if epochs is None else max(epochs * self.epoch_batches - first, 0)
        numbers, indices = count(first), self.order.since(seed, first)
        requests = islice(zip(numbers, map(self._rows, indices), strict=False), last)
        self.fetch.entropy = (seed, self._share[0])
        batches: Iterator[TensorDictBase] = map(self.fetch.__getitem__, requests)
        if self.options["num_workers"]:
            options = dict(self.options)
            options["worker_init_fn"] = _Worker(options.pop("worker_init_fn", None))
            drawn = torch.Generator().manual_seed(_entropy(seed, first))
            batches = iter(
                DataLoader(
                    self.fetch,
                    batch_size=None,
                    sampler=requests,
                    collate_fn=_unchanged,
                    generator=drawn,
                    **options,
                )
            )
        for number, batch in enumerate(batches, first + 1):
            yield Position(*divmod(number, self.epoch_batches)), batch

    def _rows(self, indices: Any) -> Any:
        rank, world_size = self._share
        if world_size == 1:
            return indices
        rows = share_equally(len(indices), world_size, "batch_size")
        return indices[rank * rows : (rank + 1) * rows]

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state besides the position."""
        return None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class Streamed:
    """Batches of a loader that can only be iterated; its own state is used if it has one."""

    def __init__(self, loader: Any, names: Names) -> None:
        self.loader, self.names = loader, names
        data = loader.dataset
        self._kind = type(data).__name__
        self._stateful: Any = loader if has_state(loader) else None
        if self._stateful is None and has_state(data) and not loader.num_workers:
            self._stateful = _Resumable(data)
            kept = {name: getattr(loader, name) for name in ("drop_last", "collate_fn")}
            self.loader = DataLoader(self._stateful, loader.batch_size, **kept)
        self.resumes: Resumes = "exactly" if self._stateful is not None else "partly"
        self.unsaved = None
        if self._stateful is None:
            self.unsaved = (
                f"The data set, a {self._kind}, can only be iterated and has no "
                "state_dict. A resumed run loads and discards the batches it was trained on: it is "
                "exact only if the data set yields the same samples again."
            )
        try:
            self.epoch_batches: int | None = len(loader)
        except TypeError:
            self.epoch_batches = None
        self.epoch_samples = -1
        self._loaded = False

    def facts(self) -> dict[str, Any]:
        """Describe the data: a run cannot be resumed with other facts."""
        return {"batches of an epoch": self.epoch_batches, "batch_size": self.loader.batch_size}

    def check_shares(self, number: int) -> None:
        """Refuse to divide batches, which each process would have to load."""
        raise no_shard(self._kind, number)

    def shard(self, rank: int, world_size: int) -> None:
        """Do what `check_shares` does."""
        self.check_shares(world_size)

    def start(self, seed: int, position: Position, epochs: int | None) -> Batches:
        """Yield the batches after a position, until the epochs are over."""
        epoch, done = position
        while epochs is None or epoch < epochs:
            discarded = 0 if self._loaded else done
            self._loaded = False
            for part in (self.loader.dataset, getattr(self.loader, "batch_sampler", None)):
                _set_epoch(part, epoch)
            with undisturbed():
                seed_all((seed, epoch))
                batches = iter(self.loader)
            number = done
            for number, batch in enumerate(islice(batches, discarded, None), done + 1):
                yield Position(epoch, number), as_batch(batch, self.names)
            if not number:
                raise ConfigError(
                    f"the data set, a {self._kind}, yields no batch: fill it, or make batch_size "
                    "smaller."
                )
            epoch, done = epoch + 1, 0

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state besides the position."""
        return None if self._stateful is None else self._stateful.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self._stateful is None:
            return
        if state_dict is None:
            raise StateMismatchError("the saved run was trained on a data set without a state.")
        self._stateful.load_state_dict(state_dict)
        self._loaded = True


class _Resumable(torch.utils.data.IterableDataset[Any]):
    """An iterable data set with a state, which also notes whether the data is exhausted."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self._is_exhausted = self._was_exhausted = False

    def __iter__(self) -> Iterator[Any]:
        self._is_exhausted = False
        if not self._was_exhausted:  # else nothing is left of the saved epoch
            yield from self.data
        self._is_exhausted, self._was_exhausted = True, False

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch on."""
        _set_epoch(self.data, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the data, unless the data is exhausted."""
        return {"data": None if self._is_exhausted else self.data.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._was_exhausted = state_dict["data"] is None
        if not self._was_exhausted:
            self.data.load_state_dict(state_dict["data"])


class _Worker:
    """Prepares a worker process; the signals of a terminal are for the trainer alone."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.own is not None:
            self.own(worker)


def _entropy(seed: int, number: int) -> int:
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint32)[0])


def _set_epoch(part: Any, epoch: int) -> None:
    if callable(set_epoch := getattr(part, "set_epoch", None)):
        set_epoch(epoch)


def _unchanged(batch: Any) -> Any:
    return batch
