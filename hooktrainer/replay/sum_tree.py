"""A sum tree: searches millions of weights, and changes hundreds of them, in microseconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_FAN_OUT = 16  # children of a node: few levels, and blocks that NumPy reduces at full speed
_TOP = 4096  # nodes of the highest level at most; it is searched as one array


class SumTree:
    """Non-negative weights with their sum, minimum and maximum, and search by cumulative weight.

    Every operation is done for a whole batch at once. A node has 16 children and the upper levels
    are one array, so a million weights have two levels below it, ten million have three. A node is
    always computed from its children, never corrected by a difference: there is no drift, and the
    tree is a function of the weights alone.

    Args:
        capacity: Number of weights; all are zero at first.
        dtype: Of the weights, ``numpy.float32`` or ``numpy.float64``.
        track_maximum: Whether `maximum` is known; it makes `update` slower by a third.
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
    def nbytes(self) -> int:
        """Memory of the tree, fixed from the start."""
        nodes = [level.nbytes for levels in self._nodes.values() for level in levels]
        return self._weights.nbytes + sum(nodes)

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
        """Change some weights.

        Args:
            index: Which, ``[n]``. If one is given several times, the last weight counts.
            weight: The new weights, ``[n]`` or one for all; finite and not negative.

        Raises:
            IndexError: If an index is negative or not below the capacity.
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
        """Find the weights at some cumulative weights.

        Args:
            mass: Cumulative weights in ``[0, total)``, ``[n]``.

        Returns:
            For each the least index whose weights up to and including it sum to more than the mass.
            A weight of zero is never found, whatever the rounding.
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
        """The siblings whose aggregates stand at ``height``, in rows."""
        return self._nodes[aggregate][height - 1] if height else self._weights


def _within(mass: npt.NDArray[np.float64], total: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Keep ``mass`` in ``[0, total)``, which rounding may have left."""
    return np.minimum(np.maximum(mass, 0.0), np.nextafter(total, 0.0))
