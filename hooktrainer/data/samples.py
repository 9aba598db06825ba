"""Samples of a data set: fetching them by index and joining them in a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset, default_collate, get_worker_info

from ..base.words import listed
from ..errors import ConfigError
from ..store.rng import seed_all

Names = Sequence[str] | None
Collate = Callable[[list[Any]], Any]


def as_samples(data: Any, names: Names) -> Any:
    """Return a data set of tensors as a TensorDict, which is indexed by batches; else unchanged.

    Raises:
        ConfigError: If a mapping holds something else than tensors of one length.
    """
    if isinstance(data, TensorDataset):
        data = _named(data.tensors, names)
    if is_tensor_collection(data) or not isinstance(data, Mapping):
        return data
    kinds = (torch.Tensor, np.ndarray)
    lengths = {len(value) if isinstance(value, kinds) else None for value in data.values()}
    if len(lengths) != 1 or None in lengths:
        raise ConfigError(
            f"a data set given as a dict of {listed(map(repr, data), 4)} needs a tensor for each "
            "key, or an array, all of one length."
        )
    return TensorDict(dict(data), batch_size=[*lengths])


class Fetch(torch.utils.data.Dataset[Any]):
    """Maps the indices of a batch to the batch, here or in a worker process.

    In a worker, the global random generators are seeded for each batch. What `__getitem__` of the
    data draws is then the same for any number of workers, and in a resumed run.

    Args:
        data: A map-style data set.
        collate: Joins samples in a batch; ``None`` for torch's way.
        names: Names of the parts of a sample that is a tuple or a tensor.

    Attributes:
        entropy: Seed of the random numbers in workers.
    """

    def __init__(self, data: Any, collate: Collate | None, names: Names) -> None:
        self.data, self.collate, self.names = data, collate, names
        self.entropy: tuple[int, ...] = ()

    def __getitem__(self, request: tuple[Any, Any]) -> tuple[Any, TensorDictBase]:
        position, indices = request
        if get_worker_info() is not None:
            seed_all((*self.entropy, *position))
        return position, self.batch(indices)

    def batch(self, indices: Any) -> TensorDictBase:
        """Return the samples of these indices as a batch."""
        if self.collate is None and is_tensor_collection(self.data):
            whole: TensorDictBase = self.data[indices]
            return whole
        indices = indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
        fetch = getattr(self.data, "__getitems__", None)
        samples = fetch(indices) if callable(fetch) else [self.data[index] for index in indices]
        return as_batch((self.collate or joined)(samples), self.names)


def as_batch(batch: Any, names: Names) -> TensorDictBase:
    """Return a collated batch as a TensorDict ``[samples]``; a TensorDict unchanged.

    Raises:
        ConfigError: If it is nothing that can be one.
    """
    if is_tensor_collection(batch):
        return batch
    if hasattr(batch, "_asdict"):  # a named tuple
        batch = batch._asdict()
    if not isinstance(batch, Mapping):
        batch = _named(batch if isinstance(batch, (tuple, list)) else [batch], names)
    leaves = tree_leaves(dict(batch), is_leaf=lambda leaf: isinstance(leaf, (list, tuple)))
    if any(isinstance(leaf, (list, tuple)) and not isinstance(leaf[0], str) for leaf in leaves):
        raise ConfigError(
            f"samples with {listed(map(repr, batch), 4)} hold lists: return tensors, such as by "
            'with_format("torch") of Hugging Face, or pass collate=.'
        )
    first = next((leaf for leaf in leaves if getattr(leaf, "ndim", 0)), None)
    if first is None:
        raise ConfigError(f"a batch of {listed(map(repr, batch), 4)} has no tensor with samples.")
    return TensorDict(dict(batch), batch_size=[len(first)])


def _named(parts: Sequence[Any], names: Names) -> dict[str, Any]:
    if names is None or isinstance(names, str) or len({*names}) != len(parts):
        raise ConfigError(
            f"samples have {len(parts)} parts without names, and names={names!r}: give a name for "
            'each, such as names=("x", "y").'
        )
    return dict(zip(names, parts, strict=True))


def joined(samples: list[Any]) -> Any:
    """Join samples by torch's `default_collate`."""
    first = samples[0]
    if is_tensor_collection(first):
        return torch.stack(samples)
    if isinstance(first, Mapping):
        other = next((s for s in samples if s.keys() != first.keys()), first)
        if other is not first:
            raise ConfigError(
                f"samples have the keys {sorted(first)} and {sorted(other)}: return the same keys "
                "for each, or pass collate=."
            )
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(
            f"samples cannot be joined in a batch: {reason.rstrip('.')}. Return tensors of one "
            "shape, or pass collate=."
        ) from error
