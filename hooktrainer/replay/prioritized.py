"""Prioritized experience replay (Schaul et al., 2016, arXiv:1511.05952), on CPU and accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchrl.data.replay_buffers.samplers import PrioritizedSampler as _TorchRLSampler

from ..base.untrusted import parse_json, read_file, refusing
from ..base.untrusted.array_file import read_array
from ..errors import ConfigError
from .buffer import check_not_empty

_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


class PrioritizedSampler(_TorchRLSampler):
    """Draws transition i with probability ``P(i) = p_i ** alpha / sum_k p_k ** alpha``.

    A drop-in replacement for TorchRL's sampler of this name (a subclass, which TorchRL's buffers
    require), without its compiled extension. It lives on the CPU, whatever the storage's device.
    The importance weights are ``w_i = (N * P(i)) ** -beta``, divided by the largest of the buffer.
    A new transition gets the greatest priority so far, 1 at first.

    Args:
        max_capacity: Capacity of the buffer.
        alpha: Exponent of priorities: 0 for uniform draws.
        beta: Exponent of importance weights: 1 for full correction of the bias.
        eps: Added to every priority, so that none is zero.
        dtype: Of the tree, ``torch.float32`` or ``torch.float64``.
        reduction: How TorchRL's buffers reduce several priorities of one item to one.
        max_priority_within_buffer: Whether a new transition gets the greatest priority currently in
            the buffer.
        stratified: Whether each draw of a batch comes from an equal share of the total priority, as
            in the paper, for a lower variance.
    """

    _tree: SumTree
    _length: int  # length of the written part of the tree
    _greatest: float

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        *,
        stratified: bool = False,
    ) -> None:
        # TorchRL's constructor is not called: it builds the compiled trees.
        _check_exponents(alpha, beta)
        if dtype not in _DTYPES:
            raise ConfigError(f"PrioritizedSampler: dtype={dtype} must be float32 or float64.")
        self._max_capacity = max_capacity
        self._alpha = alpha
        self._beta = beta
        self._eps = eps
        self.dtype = dtype
        self.reduction = reduction
        self.stratified = stratified
        self._max_priority_within_buffer = max_priority_within_buffer
        self._empty()

    def __repr__(self) -> str:
        return f"PrioritizedSampler(alpha={self._alpha}, beta={self._beta}, eps={self._eps})"

    @property
    def device(self) -> torch.device:
        """The tree's device."""
        return torch.device("cpu")

    @property
    def default_priority(self) -> float:
        """The priority of a new transition."""
        if not self._max_priority_within_buffer or self._alpha == 0:
            return self._greatest
        greatest = self._tree.maximum
        return max(greatest ** (1 / self._alpha) - self._eps, 0.0) if greatest > 0 else 1.0

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Tensor]]:
        """Draw a batch.

        Args:
            storage: Has a length and, if not one-dimensional, a shape.
            batch_size: Number of draws.

        Returns:
            Indices ``[batch_size]`` (a tuple of as many for several dimensions), and
            ``"priority_weight"``, the importance weights ``[batch_size]``, float32.

        Raises:
            RuntimeError: If nothing has been stored.
        """
        total = self._tree.total
        check_not_empty(storage if total > 0 else (), batch_size)
        uniform = torch.rand(batch_size, dtype=torch.float64, generator=self._rng).numpy()
        if self.stratified:
            uniform = (np.arange(batch_size) + uniform) / batch_size
        drawn = self._tree.search(uniform * total)
        # (N P(i)) ** -beta over its maximum: N and the sum cancel out.
        weight = (self._tree.weights[drawn] / self._tree.minimum) ** -self._beta
        index = torch.from_numpy(drawn)
        info = {"priority_weight": torch.from_numpy(weight.astype(np.float32))}
        return (torch.unravel_index(index, storage.shape) if storage.ndim > 1 else index), info

    def update_priority(self, index: Any, priority: Tensor | float, *, storage: Any = None) -> None:
        """Set priorities, usually to the absolute or squared TD errors.

        Args:
            index: ``[n]``, or ``[n, dims]`` for a storage of several dimensions. Negative indices
                are ignored. The last of duplicates counts.
            priority: ``[n]``, or one for all.
            storage: The storage; needed only if it has several dimensions.

        Raises:
            ValueError: If a priority is negative, infinite or NaN, or their number is wrong.
        """
        flat = _flat(index, storage)
        value = torch.as_tensor(priority).detach().cpu().double().reshape(-1).numpy()
        if value.size not in (1, flat.size):
            raise ValueError(f"{value.size} priorities for {flat.size} indices.")
        if not ((value >= 0) & (value < np.inf)).all():
            raise ValueError(
                f"priorities from {value.min()} to {value.max()}: they must be finite and >= 0. "
                "Has the loss diverged?"
            )
        if flat.size and flat.min() < 0:
            value = np.broadcast_to(value, flat.shape)[flat >= 0]
            flat = flat[flat >= 0]
        if flat.size:
            self._greatest = max(self._greatest, float(value.max()))
            self._length = max(self._length, int(flat.max()) + 1)
            self._tree.update(flat, (value + self._eps) ** self._alpha)

    def mark_update(self, index: Any, *, storage: Any = None) -> None:
        """Give new transitions the default priority."""
        self.update_priority(index, self.default_priority, storage=storage)

    def state_dict(self) -> dict[str, Any]:
        """Return the state; the tree is rebuilt exactly from its weights."""
        return {
            "weights": torch.from_numpy(self._tree.weights[: self._length].copy()),
            "max_priority": self._greatest,
            "alpha": self._alpha,
            "beta": self._beta,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ConfigError: If the state exceeds the capacity.
        """
        weights = _saved_weights(state_dict, self._max_capacity).numpy()
        self._empty()
        self._tree.update(np.arange(len(weights)), weights)
        self._length = len(weights)
        self._greatest = state_dict["max_priority"]
        self._alpha, self._beta = state_dict["alpha"], state_dict["beta"]

    def dumps(self, path: str | Path) -> None:
        """Write the state to a directory, for TorchRL's ``replay_buffer.dumps``."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        state = self.state_dict()
        np.save(path / "weights.npy", state.pop("weights").numpy())
        (path / "sampler.json").write_text(json.dumps(state))

    def loads(self, path: str | Path) -> None:
        """Read what `dumps` wrote."""
        path = Path(path)
        with refusing(path, ConfigError):
            state = parse_json(read_file(path / "sampler.json", path), nan=True)
            weights = torch.from_numpy(read_array(path / "weights.npy", path))
            self.load_state_dict({**state, "weights": weights})

    def _empty(self) -> None:
        self._tree = SumTree(
            self._max_capacity, _DTYPES[self.dtype], track_maximum=self._max_priority_within_buffer
        )
        self._length = 0
        self._greatest = 1.0

    def _retransform_priority_trees(self, old_alpha: float, new_alpha: float) -> None:
        """Apply a change of ``alpha`` by TorchRL's schedulers."""
        written = np.flatnonzero(self._tree.weights)
        if old_alpha == 0 and written.size:
            raise ConfigError(
                f"alpha cannot change from 0 to {new_alpha}: priorities were not kept. Start from "
                "a small alpha instead."
            )
        if written.size:
            self._tree.update(written, self._tree.weights[written] ** (new_alpha / old_alpha))


def _check_exponents(alpha: float, beta: float) -> None:
    if alpha < 0 or beta < 0:
        raise ConfigError(f"prioritized sampling: alpha={alpha} and beta={beta} must be >= 0.")


def _saved_weights(state_dict: dict[str, Any], capacity: int) -> Tensor:
    weights: Tensor = state_dict["weights"]
    if len(weights) > capacity:
        raise ConfigError(
            f"the state holds {len(weights)} priorities, but max_capacity is {capacity}: build the "
            "sampler with the capacity it was saved with."
        )
    return weights


def _flat(index: Any, storage: Any) -> npt.NDArray[np.int64]:
    """Return flat indices of a storage of any shape."""
    if isinstance(index, tuple):
        index = torch.stack(index, -1)
    array = torch.as_tensor(index).cpu().numpy().astype(np.int64, copy=False)
    if array.ndim < 2:
        return array.reshape(-1)
    return np.ravel_multi_index(tuple(array.T), tuple(storage.shape))


_FAN_OUT = 16  # children of a node: few levels, and blocks that NumPy reduces at full speed
_TOP = 4096  # nodes of the highest level at most; it is searched as one array


class SumTree:
    """Non-negative weights with their sum, minimum and maximum, and search by cumulative weight.

    Operations work on whole batches. A node has 16 children and the upper levels are one array, so
    a million weights have two levels below it, ten million three. Each node is recomputed from its
    children, so rounding errors do not accumulate.

    Args:
        capacity: Number of weights, initially zero.
        dtype: Of the weights, ``numpy.float32`` or ``numpy.float64``.
        track_maximum: Whether to keep `maximum`; it makes `update` slower by a third.
    """

    def __init__(
        self, capacity: int, dtype: npt.DTypeLike = np.float64, *, track_maximum: bool = False
    ) -> None:
        self.capacity = capacity
        aggregates: dict[np.ufunc, float] = {np.add: 0.0, np.minimum: np.inf}
        if track_maximum:
            aggregates[np.maximum] = 0.0
        # Level by level from the bottom, siblings in rows; the last level is one row.
        sizes = [capacity]
        while len(sizes) == 1 or sizes[-1] > _TOP:
            sizes.append(-(-sizes[-1] // _FAN_OUT))
        shapes = [(size, _FAN_OUT) for size in sizes[1:]] + [(1, sizes[-1])]
        self._weights = np.zeros(shapes[0], dtype)
        self._nodes: dict[np.ufunc, list[npt.NDArray[np.floating]]] = {
            aggregate: [np.full(shape, neutral, dtype) for shape in shapes[1:]]
            for aggregate, neutral in aggregates.items()
        }

    @property
    def weights(self) -> npt.NDArray[np.floating]:
        """The weights, as a view that must not be written to."""
        return self._weights.reshape(-1)[: self.capacity]

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._nodes[np.add][-1].sum(dtype=np.float64))

    @property
    def minimum(self) -> float:
        """The least weight above zero; infinite if there is none."""
        return float(self._nodes[np.minimum][-1].min())

    @property
    def maximum(self) -> float:
        """The greatest weight; only with ``track_maximum``."""
        return float(self._nodes[np.maximum][-1].max())

    def update(self, index: npt.NDArray[np.int64], weight: npt.ArrayLike) -> None:
        """Change weights.

        Args:
            index: ``[n]``. The last of duplicates counts.
            weight: ``[n]`` or one for all; finite and not negative.

        Raises:
            IndexError: If an index is out of range.
        """
        if not index.size:
            return
        if index.min() < 0 or index.max() >= self.capacity:
            raise IndexError(
                f"indices from {index.min()} to {index.max()} in a tree of {self.capacity} weights."
            )
        self._weights.reshape(-1)[index] = weight
        for height in range(len(self._nodes[np.add])):
            index = index // _FAN_OUT
            if index.size > _TOP:  # a long write fills whole blocks; compute each of them once
                index = np.unique(index)
            for aggregate, levels in self._nodes.items():
                blocks = self._blocks(aggregate, height)[index]
                if height == 0 and aggregate is np.minimum:
                    blocks = np.where(blocks > 0, blocks, np.inf)  # zero is no weight
                levels[height].reshape(-1)[index] = aggregate.reduce(blocks, axis=1)

    def search(self, mass: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return, for each mass, the least index whose inclusive cumulative sum exceeds it.

        A weight of zero is never found, whatever the rounding.

        Args:
            mass: Cumulative weights in ``[0, total)``, ``[n]``.
        """
        top = self._nodes[np.add][-1][0]
        sums = top.cumsum(dtype=np.float64)
        mass = _within(mass, sums[-1])
        index = sums.searchsorted(mass, side="right")
        mass = mass - (sums[index] - top[index])
        rows = np.arange(len(mass))
        for height in reversed(range(len(self._nodes[np.add]))):
            blocks = self._blocks(np.add, height)[index]
            sums = blocks.cumsum(axis=1, dtype=np.float64)
            mass = _within(mass, sums[:, -1])
            child = (sums > mass[:, None]).argmax(axis=1)
            mass = mass - (sums[rows, child] - blocks[rows, child])
            index = index * _FAN_OUT + child
        return index

    def _blocks(self, aggregate: np.ufunc, height: int) -> npt.NDArray[np.floating]:
        return self._nodes[aggregate][height - 1] if height else self._weights


def _within(mass: npt.NDArray[np.float64], total: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Clamp ``mass`` to ``[0, total)`` against rounding."""
    return np.minimum(np.maximum(mass, 0.0), np.nextafter(total, 0.0))


class DevicePrioritizedSampler:
    """Draws as `PrioritizedSampler` does, on an accelerator and without synchronization.

    It sums all weights for every batch, which for a million transitions is faster than a
    synchronization. Priorities are not checked to be finite.

    Args:
        max_capacity: Capacity of the buffer.
        alpha: Exponent of priorities: 0 for uniform draws.
        beta: Exponent of importance weights: 1 for full correction of the bias.
        eps: Added to every priority, so that none is zero.
        device: The transitions' device.
        stratified: Whether each draw of a batch comes from an equal share of the total priority.
    """

    _rng: torch.Generator | None = None  # set by the buffer
    _weights: Tensor
    _greatest: Tensor

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        *,
        device: torch.device | str,
        stratified: bool = False,
    ) -> None:
        _check_exponents(alpha, beta)
        self.max_size = max_capacity
        self.device = torch.device(device)
        self.stratified = stratified
        self._alpha = alpha
        self._beta = beta
        self._eps = eps
        self._empty()

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw indices and ``"priority_weight"``, float32, ``[batch_size]`` each.

        Raises:
            RuntimeError: If nothing has been stored.
        """
        check_not_empty(storage, batch_size)
        sums = self._weights.cumsum(0, dtype=torch.float64)
        uniform = torch.rand(
            batch_size, dtype=torch.float64, device=self.device, generator=self._rng
        )
        if self.stratified:
            places = torch.arange(batch_size, device=self.device)
            uniform = (places + uniform) / batch_size
        drawn = torch.searchsorted(sums, uniform * sums[-1], right=True)
        drawn = drawn.clamp_max(len(storage) - 1)
        least = self._weights.where(self._weights > 0, float("inf")).amin()
        # (N P(i)) ** -beta over its maximum: N and the sum cancel out.
        return drawn, {"priority_weight": (self._weights[drawn] / least) ** -self._beta}

    def update_priority(
        self, index: Tensor, priority: Tensor | float, *, storage: Any = None
    ) -> None:
        """Set priorities, usually to the absolute or squared TD errors.

        Args:
            index: ``[n]``. Any one of duplicates counts.
            priority: ``[n]``, or one for all; finite and not negative.
            storage: Not used.
        """
        index = index.to(self.device, non_blocking=True).reshape(-1)
        given = torch.as_tensor(priority, dtype=torch.float32).detach()
        value = given.to(self.device, non_blocking=True).reshape(-1).expand(len(index))
        self._greatest = torch.maximum(self._greatest, value.amax())
        self._weights[index] = (value + self._eps) ** self._alpha

    def mark_update(self, index: Tensor, *, storage: Any = None) -> None:
        """Give new transitions the greatest priority so far."""
        self.update_priority(index, self._greatest, storage=storage)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, which `PrioritizedSampler` can load as well."""
        return {
            "weights": self._weights.cpu().clone(),
            "max_priority": float(self._greatest),
            "alpha": self._alpha,
            "beta": self._beta,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ConfigError: If the state exceeds the capacity.
        """
        weights = _saved_weights(state_dict, self.max_size)
        self._empty()
        self._weights[: len(weights)] = weights.to(self.device)
        self._greatest.fill_(state_dict["max_priority"])
        self._alpha, self._beta = state_dict["alpha"], state_dict["beta"]

    def _empty(self) -> None:
        self._weights = torch.zeros(self.max_size, device=self.device)
        self._greatest = torch.ones((), device=self.device)
