"""`DataCollector`: hands a data set to the trainer, batch by batch and epoch by epoch."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import finalize

import torch
from tensordict import TensorDictBase, is_tensor_collection
from torch.utils.data import DataLoader, IterableDataset

from ..base.checks import check_count, share_equally
from ..base.words import plural
from ..collect.collector import Collector, Resumes
from ..errors import ConfigError, StateMismatchError
from ..loop.stateful import differing
from .batches import (
    OF_WORKERS,
    Batches,
    Draws,
    Indexed,
    Order,
    Position,
    Sampled,
    Share,
    Streamed,
)
from .samples import Collate, Fetch, Names, as_samples, joined


class DataCollector(Collector):
    """Yields the batches of a data set, so that `hooktrainer.Trainer` trains on it.

    Samples are dicts, TensorDicts, or tuples whose parts ``names`` names. Data made of tensors (a
    TensorDict, a dict of tensors, a `torch.utils.data.TensorDataset`) is indexed batch by batch.

    The order of an epoch is a function of ``seed`` and the number of the epoch; `Trainer` sets its
    own seed. The state is the position, so a resumed run neither skips nor repeats a sample, with
    worker processes too. In these the global random generators are seeded for every batch: random
    augmentations are the same for any number of workers, and after a resume.

    Of a `torch.utils.data.DataLoader` the sampler, the collation and the workers are used. The
    sampler is run once an epoch, with seeded generators, so that a resumed run skips indices and
    not data. A loader with a ``state_dict``, such as torchdata's ``StatefulDataLoader``, and an
    iterable data set are iterated unchanged. Without a ``state_dict``, a resumed run loads the
    batches it had and discards them. Their ``epoch`` changes with the first batch of the next one,
    unless their length is known. Each of several processes loads all of them, and keeps its rows.

    Args:
        data: A map-style or iterable data set, a Hugging Face ``datasets`` object, a TensorDict, a
            dict of tensors, a list of samples, or a `torch.utils.data.DataLoader`.
        batch_size: Samples in a batch. A loader has its own, as well as the four that follow.
        shuffle: Whether every epoch has an order of its own; by default true where samples have an
            index.
        drop_last: Whether a smaller last batch is left out; by default false.
        num_workers: Processes that load samples; by default 0, for this one.
        collate: Makes a batch of a list of samples: a TensorDict, a dict, or a tuple.
        replacement: Whether batches are drawn from all samples with replacement.
        names: Names of the parts of samples that are tuples or tensors, such as ``("x", "y")``.
        epochs: Passes over the data; ``None`` for no end.
        seed: Seed of the order.
        device: Where batches are. Data made of tensors is moved there once.
        unit: What a batch counts; ``"tokens"`` if ``collate`` makes batches ``[samples, time]``.

    Attributes:
        epoch: Passes over the data so far, as a fraction.

    Raises:
        ConfigError: If there is no batch in the data, or an argument is invalid.

    Examples:
        >>> data = {"x": torch.arange(10.0), "y": torch.arange(10) % 2}
        >>> collector = DataCollector(data, 4, epochs=2)
        >>> [len(batch) for batch in collector]
        [4, 4, 2, 4, 4, 2]
        >>> collector.ended
        'the data ran out after 2 epochs'
    """

    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool | None = None,
        drop_last: bool | None = None,
        num_workers: int | None = None,
        collate: Collate | None = None,
        replacement: bool | None = None,
        names: Names = None,
        epochs: int | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        unit: str = "samples",
    ) -> None:
        check_count("epochs", epochs, none="no end")
        self.device = None if device is None else torch.device(device)
        options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle}
        options |= {"drop_last": drop_last, "num_workers": num_workers}
        options |= {"replacement": replacement, "collate": collate}
        given = {name: value for name, value in options.items() if value is not None}
        self._source = (
            _of_loader(data, names, given)
            if isinstance(data, DataLoader) or hasattr(data, "batch_sampler")
            else _of_data(data, names, self.device, **given)
        )
        self.unit = unit
        self.epochs = epochs
        self.seed = seed
        self._position = Position()
        self._share: Share = (0, 1)
        self._batches: Batches | None = None
        self._end: finalize[..., Any] | None = None
        self._count()

    def _count(self) -> None:
        """Set the numbers of samples, as far as they are known."""
        samples = self._source.epoch_samples
        if self.unit == "samples" and samples >= 0 and self.epochs is not None:
            self.total_frames = self.epochs * samples // self._share[1]

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        return self._source.resumes

    @property
    def unsaved(self) -> str | None:
        return self._source.unsaved

    @property
    def epoch(self) -> float:  # type: ignore[override]
        epoch, batch = self._position
        number = self._source.epoch_batches
        return epoch + (min(batch / number, 1.0) if number else 0)

    @property
    def ended(self) -> str | None:  # type: ignore[override]
        if self.epochs is None or self._position.epoch < self.epochs:
            return None
        return f"the data ran out after {plural(self.epochs, 'epoch')}"

    def collect(self) -> TensorDictBase:
        self._check_open()
        if self._batches is None:
            self._close()
            self._batches = self._source.since(
                self.seed or 0, self._position, self.epochs, self._share
            )
            # Its workers ignore the signal by which the interpreter would end them when it exits,
            # and wait for it if the garbage collector takes their queues before their loader.
            self._end = finalize(self, _end, self._batches, self._source, os.getpid())
            atexit.register(self._end)  # before torch's, after which a loader ends no workers
        try:
            self._position, batch = next(self._batches)
        except BaseException as error:
            self._batches = None  # a generator that failed would raise StopIteration the next time
            if isinstance(error, ConfigError):  # of a worker, which adds a traceback
                raise ConfigError(str(error).rstrip().rpartition("ConfigError: ")[2]) from error
            if isinstance(error, StopIteration):
                assert self.epochs is not None
                self._position = Position(self.epochs)
            raise
        if self.device is not None:
            batch = batch.to(self.device, non_blocking=True)
        self.frames += batch.numel()
        return batch

    def set_seed(self, seed: int, static_seed: bool = False) -> None:
        self.seed, self.frames = seed, 0
        self._restart(Position())

    def _restart(self, position: Position) -> None:
        self._close()
        self._position = position

    def _close(self) -> None:
        self._batches = None
        if self._end is not None:
            self._end()
            atexit.unregister(self._end)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "data": self._source.facts(),
            "seed": self.seed,
            "epoch": self._position.epoch,
            "batch": self._position.batch,
            self.unit: self.frames * self._share[1],
            "source": self._source.state_dict(),
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List in what the data differs from that of a saved run."""
        return differing(self._source.facts(), saved.get("data", {}))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if lines := self.mismatches(state_dict):
            raise StateMismatchError(
                f"{'; '.join(lines)}: resume with the data and the batch size of the saved run."
            )
        self.seed = state_dict["seed"]
        self.frames = state_dict[self.unit] // self._share[1]
        self._restart(Position(state_dict["epoch"], state_dict["batch"]))
        self._source.load_state_dict(state_dict["source"])

    # -- shared among processes ------------------------------------------------------------------

    def check_shares(self, number: int) -> None:
        sizes = self._source.sizes
        for size in sorted(sizes, reverse=True):
            if size < max(sizes) and size % number:
                raise ConfigError(
                    f"the last batch of an epoch has {size} samples, which {number} processes "
                    "cannot share equally: pass drop_last=True."
                )
            share_equally(size, number, "batch_size")

    def shard(self, rank: int, world_size: int) -> None:
        self.check_shares(world_size)
        self._share = (rank, world_size)
        self._count()

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return dict(states[0])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batches": None, "_end": None}


def _end(batches: Batches, source: Indexed | Streamed, parent: int) -> None:
    if os.getpid() == parent:  # a forked process leaves the workers to it
        batches.close()
        source.close()


def _of_loader(loader: Any, names: Names, given: Mapping[str, Any]) -> Indexed | Streamed:
    """Return the batches of a loader."""
    if given:
        raise ConfigError(
            f"{next(iter(given))}= is that of the {type(loader).__name__}: leave it out, or pass "
            "the data set in place of the loader."
        )
    if isinstance(loader.dataset, IterableDataset) or hasattr(loader, "load_state_dict"):
        return Streamed(loader, names)
    if loader.batch_sampler is None:
        raise ConfigError(
            "the DataLoader has batch_size=None, so it makes no batches: pass its data set, and "
            "batch_size= to DataCollector."
        )
    if not hasattr(loader.batch_sampler, "__len__"):
        raise ConfigError(
            f"the {type(loader.batch_sampler).__name__} of the DataLoader has no length: give it "
            "a method __len__, the batches of an epoch."
        )
    if hasattr(getattr(loader.batch_sampler, "sampler", None), "num_replicas"):
        raise ConfigError(
            "the DataLoader has a DistributedSampler: leave it out, the trainer divides batches "
            "among the processes."
        )
    if not len(loader.batch_sampler):
        raise _no_batch(len(loader.dataset), loader.batch_size)
    kept = {name: getattr(loader, name) for name in OF_WORKERS}
    return Indexed(Fetch(loader.dataset, loader.collate_fn, names), Sampled(loader), kept)


def _of_data(
    data: Any,
    names: Names,
    device: torch.device | None,
    *,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    drop_last: bool = False,
    num_workers: int = 0,
    collate: Collate | None = None,
    replacement: bool = False,
) -> Indexed | Streamed:
    """Return the batches of a data set."""
    check_count("batch_size", batch_size)
    check_count("num_workers", num_workers, least=0)
    assert batch_size is not None
    options: dict[str, Any] = {"num_workers": num_workers}
    options["pin_memory"] = device is not None and device.type == "cuda" and num_workers > 0
    data = as_samples(data, names)
    if is_tensor_collection(data) and device is not None:  # workers could not share it
        data, options = data.to(device), {"num_workers": 0}
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) < (batch_size if drop_last else 1):
            raise _no_batch(len(data), batch_size)
        order = Order(len(data), batch_size, shuffle is not False, drop_last)
        if replacement:
            order = Draws(len(data), batch_size)
        return Indexed(Fetch(data, collate, names), order, options)
    if not isinstance(data, IterableDataset):
        raise ConfigError(
            f"data={data!r:.80}: pass a data set with __getitem__ and __len__, or an "
            "IterableDataset."
        )
    if shuffle or replacement:
        raise ConfigError(
            f"a {type(data).__name__} has no samples by index, so their order is its own: leave "
            "shuffle= and replacement= out, and shuffle in the data set."
        )
    collate = collate or joined
    loader = DataLoader(data, batch_size, drop_last=drop_last, collate_fn=collate, **options)
    return Streamed(loader, names)


def _no_batch(samples: int, batch_size: int | None) -> ConfigError:
    return ConfigError(
        f"the data set has {plural(samples, 'sample')}, and with batch_size={batch_size} no batch: "
        "fill it, make batch_size smaller, or pass drop_last=False."
    )
