"""The batches of a data set from any position on: by index, or from what can only be iterated."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, get_worker_info

from ..base.checks import share_equally
from ..base.endings import ENDING_SIGNALS
from ..collect.collector import Resumes
from ..errors import ConfigError, StateMismatchError
from ..loop.stateful import has_state
from ..store.rng import seed_all, seed_of, undisturbed
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
Batches = Generator[tuple[Position, TensorDictBase], None, None]
"""Batches, each with the position after it."""
Share = tuple[int, int]
"""Which rows of every batch this process has: its rank, and the number of processes."""


# -- The order of samples.


class Order:
    """The indices of the batches of every epoch: one order, or a permutation for each epoch.

    Attributes:
        name: The order, in words.
        epoch_batches: Batches of an epoch.
        epoch_samples: Samples of an epoch; -1 if unknown.
        sizes: Sizes of batches, as far as they are known.
    """

    def __init__(self, samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> None:
        batches, rest = divmod(samples, batch_size)
        self.name = "shuffled" if shuffle else "unshuffled"
        self.samples = samples
        self.batch_size = batch_size
        self.epoch_batches = batches + (rest > 0 and not drop_last)
        self.epoch_samples = batches * batch_size if drop_last else samples
        self.sizes = {batch_size, self.epoch_samples % batch_size} - {0}

    def since(
        self, seed: int, position: Position, epochs: int | None
    ) -> Iterator[tuple[Position, Any]]:
        """Yield the indices of the batches after a position, until the epochs are over."""
        done = position.batch
        for epoch in _numbers(position.epoch, epochs):
            batches = self.of_epoch(seed, epoch)
            for number, indices in enumerate(batches[done:], done + 1):
                is_last = number == len(batches)
                yield Position(epoch + 1) if is_last else Position(epoch, number), indices
            done = 0

    def of_epoch(self, seed: int, epoch: int) -> Sequence[Any]:
        """Return the indices of the batches of an epoch."""
        indices = torch.arange(self.samples)
        if self.name == "shuffled":
            drawn = torch.Generator().manual_seed(seed_of((seed, epoch)))
            indices = torch.randperm(self.samples, generator=drawn)
        return torch.split(indices, self.batch_size)[: self.epoch_batches]


class Draws(Order):
    """Indices that are drawn from all samples, with replacement."""

    def __init__(self, samples: int, batch_size: int) -> None:
        super().__init__(samples, batch_size, shuffle=True, drop_last=False)
        self.name = "drawn with replacement"
        self.epoch_samples = self.epoch_batches * batch_size
        self.sizes = {batch_size}

    def since(
        self, seed: int, position: Position, epochs: int | None
    ) -> Iterator[tuple[Position, Any]]:
        drawn, size = torch.Generator().manual_seed(seed), (self.batch_size,)
        last = None if epochs is None else epochs * self.epoch_batches
        for number in _numbers(0, last):
            indices = torch.randint(self.samples, size, generator=drawn)
            following = Position(*divmod(number + 1, self.epoch_batches))
            if following > position:  # the others were used before a resume
                yield following, indices


class Sampled(Order):
    """The indices that the sampler of a loader yields, with seeded generators."""

    def __init__(self, loader: Any) -> None:
        sampler, size, drop_last = loader.batch_sampler, 0, False
        if type(sampler) is BatchSampler:  # others may make batches of any size
            size, drop_last = sampler.batch_size, sampler.drop_last
        own = getattr(sampler, "sampler", None)
        number = len(loader.dataset if own is None else own)
        super().__init__(number, size or number or 1, shuffle=True, drop_last=drop_last)
        self.name = type(sampler if own is None else own).__name__
        self.sampler = sampler
        self.epoch_batches = len(sampler)
        if not size:
            self.epoch_samples, self.sizes = -1, set()

    def of_epoch(self, seed: int, epoch: int) -> Sequence[Any]:
        _begin_epoch(self.sampler, seed, epoch)
        with undisturbed():
            seed_all((seed, epoch))
            return list(self.sampler)


# -- Sources of batches.


class Indexed:
    """Batches of a data set that has samples by index.

    Attributes:
        resumes: As for `hooktrainer.collect.Collector`.
        unsaved: As for `hooktrainer.collect.Collector`.
        epoch_batches: Batches of an epoch; ``None`` if unknown.
        epoch_samples: Samples of an epoch; -1 if unknown.
        sizes: Sizes of batches, as far as they are known.
    """

    resumes: Resumes = "exactly"
    unsaved: str | None = None

    def __init__(self, fetch: Fetch, order: Order, options: Mapping[str, Any]) -> None:
        self.fetch, self.order, self.options = fetch, order, options
        self.epoch_batches: int | None = order.epoch_batches
        self.epoch_samples = order.epoch_samples
        self.sizes = order.sizes

    def facts(self) -> dict[str, Any]:
        """Describe the data: a run cannot be resumed with other facts."""
        return {
            "samples": len(self.fetch.data),
            "batch_size": self.order.batch_size,
            "batches of an epoch": self.epoch_batches,
            "order": self.order.name,
            "fingerprint": getattr(self.fetch.data, "_fingerprint", None),
        }

    def since(self, seed: int, position: Position, epochs: int | None, share: Share) -> Batches:
        """Yield this process's rows of the batches after a position, until the epochs are over."""
        self.fetch.entropy = (seed, share[0])
        requests = (
            (following, own_rows(indices, share))
            for following, indices in self.order.since(seed, position, epochs)
        )
        if not self.options["num_workers"]:
            yield from map(self.fetch.__getitem__, requests)
            return
        options = dict(self.options)
        options["worker_init_fn"] = _Worker(self.fetch.data, options.pop("worker_init_fn", None))
        drawn = torch.Generator().manual_seed(seed_of((seed, 0)))
        yield from DataLoader(
            self.fetch,
            batch_size=None,
            sampler=requests,
            collate_fn=_unchanged,
            generator=drawn,
            **options,
        )

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state besides the position."""
        return None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def close(self) -> None:
        """End the processes that outlast an iteration."""


class Streamed:
    """Batches of a loader that can only be iterated; its own state is used if it has one.

    Its attributes and methods are those of `Indexed`.
    """

    epoch_samples = -1

    def __init__(self, loader: Any, names: Names) -> None:
        self.loader, self.names = loader, names
        data = loader.dataset
        self._kind = type(data).__name__
        if loader.num_workers:
            loader.worker_init_fn = _Worker(data, loader.worker_init_fn)
        self._stateful: Any = loader if has_state(loader) else None
        if self._stateful is None and has_state(data) and not loader.num_workers:
            self._stateful = _Resumable(data)
            kept = {name: getattr(loader, name) for name in ("drop_last", "collate_fn")}
            self.loader = DataLoader(self._stateful, loader.batch_size, **kept)
        self.resumes: Resumes = "exactly"
        self.unsaved: str | None = None
        if self._stateful is None:
            self.resumes = "partly"
            self.unsaved = (
                f"The data set, a {self._kind}, can only be iterated and has no "
                "state_dict. A resumed run loads and discards the batches it was trained on: it is "
                "exact only if the data set yields the same samples again."
            )
        self.sizes = set() if loader.batch_size is None else {loader.batch_size}
        try:
            self.epoch_batches: int | None = len(loader)
        except TypeError:
            self.epoch_batches = None
        self._loaded = False

    def facts(self) -> dict[str, Any]:
        return {"batches of an epoch": self.epoch_batches, "batch_size": self.loader.batch_size}

    def since(self, seed: int, position: Position, epochs: int | None, share: Share) -> Batches:
        done = position.batch
        for epoch in _numbers(position.epoch, epochs):
            discarded = 0 if self._loaded else done
            self._loaded = False
            _begin_epoch(self.loader.dataset, seed, epoch)
            _begin_epoch(getattr(self.loader, "batch_sampler", None), seed, epoch)
            with undisturbed():
                seed_all((seed, epoch))
                batches = iter(self.loader)
            number = done
            for number, batch in enumerate(islice(batches, discarded, None), done + 1):
                yield Position(epoch, number), own_rows(as_batch(batch, self.names), share)
            if not number:
                raise ConfigError(
                    f"the data set, a {self._kind}, yields no batch: fill it, or make batch_size "
                    "smaller."
                )
            done = 0

    def state_dict(self) -> dict[str, Any] | None:
        return None if self._stateful is None else self._stateful.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._stateful is None:
            return
        if state_dict is None:
            raise StateMismatchError("the saved run was trained on a data set without a state.")
        self._stateful.load_state_dict(state_dict)
        self._loaded = True

    def close(self) -> None:
        self.loader._iterator = None  # of a DataLoader with persistent_workers


class _Resumable(IterableDataset[Any]):
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
        _begin_epoch(self.data, 0, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the data, unless the data is exhausted."""
        return {"data": None if self._is_exhausted else self.data.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._was_exhausted = state_dict["data"] is None
        if not self._was_exhausted:
            self.data.load_state_dict(state_dict["data"])


class _Worker:
    """Prepares a worker process of a `DataLoader`."""

    def __init__(self, data: Any, own: Any) -> None:
        self.data, self.own = data, own

    def __call__(self, worker: int) -> None:
        for number in ENDING_SIGNALS:  # the trainer ends its workers
            signal.signal(number, signal.SIG_IGN)
        # What users' functions look for, in place of `Fetch`; the class is frozen.
        object.__setattr__(get_worker_info(), "dataset", self.data)
        if self.own is not None:
            self.own(worker)


def own_rows(batch: Any, share: Share) -> Any:
    """Return the rows of a batch, or of its indices, that a process has."""
    rank, world_size = share
    if world_size == 1:
        return batch
    rows = share_equally(len(batch), world_size, "the size of a batch")
    return batch[rank * rows : (rank + 1) * rows]


def _begin_epoch(part: Any, seed: int, epoch: int) -> None:
    """Prepare a data set or a sampler, and the sampler that it has, for an epoch."""
    for one in (part, getattr(part, "sampler", None)):
        if callable(set_epoch := getattr(one, "set_epoch", None)):
            set_epoch(epoch)
        if isinstance(generator := getattr(one, "generator", None), torch.Generator):
            generator.manual_seed(seed_of((seed, epoch)))


def _numbers(first: int, end: int | None) -> Iterator[int]:
    return iter(count(first) if end is None else range(first, end))


def _unchanged(batch: Any) -> Any:
    return batch
