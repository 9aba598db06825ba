"""Prioritized experience replay (Schaul et al., 2016, arXiv:1511.05952), on CPU and accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import ConfigError
from .buffer import RandomSampler


class PrioritizedSampler(RandomSampler):
    """Draws transition i with probability ``P(i) = p_i ** alpha / sum_k p_k ** alpha``.

    It lives on the CPU, whatever the transitions' device. The importance weights are
    ``w_i = (N * P(i)) ** -beta``, divided by the largest of the buffer.

    Args:
        max_capacity: Capacity of the buffer.
        alpha: Exponent of priorities: 0 for uniform draws.
        beta: Exponent of importance weights: 1 for full correction of the bias.
        eps: Added to every priority, so that none is zero.
    """

    _greatest: Any  # priority of a transition so far
    _tree: SumTree

    def __init__(self, max_capacity: int, alpha: float, beta: float, eps: float = 1e-8) -> None:
        if alpha < 0 or beta < 0:
            raise ConfigError(f"prioritized sampling: alpha={alpha} and beta={beta} must be >= 0.")
        self.max_size = max_capacity
        self.alpha = alpha
        self.beta = beta
        self.eps = eps
        self._empty()

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw indices and ``"priority_weight"``, float32, ``[batch_size]`` each."""
        uniform = torch.rand(batch_size, dtype=torch.float64, generator=self._rng).numpy()
        drawn = self._tree.search(uniform * self._tree.total)
        # (N P(i)) ** -beta over its maximum: N and the sum cancel out.
        weight = (self._tree.weights[drawn] / self._tree.minimum) ** -self.beta
        info = {"priority_weight": torch.from_numpy(weight.astype(np.float32))}
        return torch.from_numpy(drawn), info

    def mark_update(self, index: Tensor) -> None:
        """Give new transitions the greatest priority so far, 1 at first."""
        self.update_priority(index, self._greatest)

    def update_priority(self, index: Tensor, priority: Tensor | float) -> None:
        """Set priorities, usually to the absolute or squared TD errors.

        Args:
            index: ``[n]``. The last of duplicates counts.
            priority: ``[n]``, or one for all.

        Raises:
            ValueError: If a priority is negative, infinite or NaN.
        """
        value = torch.as_tensor(priority).detach().cpu().double().reshape(-1).numpy()
        if not ((value >= 0) & (value < np.inf)).all():
            raise ValueError(
                f"priorities from {value.min()} to {value.max()}: they must be finite and >= 0. "
                "Has the loss diverged?"
            )
        if value.size:
            self._greatest = max(self._greatest, float(value.max()))
            self._tree.update(index.cpu().numpy().reshape(-1), (value + self.eps) ** self.alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, which `DevicePrioritizedSampler` can load, and vice versa."""
        return {
            "weights": self._weights(),
            "max_priority": float(self._greatest),
            "alpha": self.alpha,
            "beta": self.beta,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._empty()
        self._restore(state_dict["weights"], state_dict["max_priority"])
        self.alpha, self.beta = state_dict["alpha"], state_dict["beta"]

    def _empty(self) -> None:
        self._tree = SumTree(self.max_size)
        self._greatest = 1.0

    def _weights(self) -> Tensor:
        """The weights ``(priority + eps) ** alpha`` of all transitions, on the CPU."""
        return torch.from_numpy(self._tree.weights.copy())

    def _restore(self, weights: Tensor, greatest: float) -> None:
        """Set the first weights, where all are zero, and the greatest priority so far."""
        self._tree.update(np.arange(len(weights)), weights.numpy())
        self._greatest = greatest


_FAN_OUT = 16  # children of a node: few levels, and blocks that NumPy reduces at full speed
_TOP = 4096  # nodes of the highest level at most; it is searched as one array


class SumTree:
    """Non-negative float32 weights with their sum and minimum, and search by cumulative weight.

    Operations work on whole batches. A node has 16 children and the upper levels are one array, so
    a million weights have two levels below it, ten million three. Each node is recomputed from its
    children, so rounding errors do not accumulate.

    Args:
        capacity: Number of weights, initially zero.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # Level by level from the bottom, siblings in rows; the last level is one row.
        sizes = [capacity]
        while len(sizes) == 1 or sizes[-1] > _TOP:
            sizes.append(-(-sizes[-1] // _FAN_OUT))
        shapes = [*((size, _FAN_OUT) for size in sizes[1:]), (1, sizes[-1])]
        self._sums = [np.zeros(shape, np.float32) for shape in shapes]  # the first: the weights
        self._minima = [np.full(shape, np.inf, np.float32) for shape in shapes[1:]]

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """The weights, as a view that must not be written to."""
        return self._sums[0].reshape(-1)[: self.capacity]

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._sums[-1].sum(dtype=np.float64))

    @property
    def minimum(self) -> float:
        """The least weight above zero; infinite if there is none."""
        return float(self._minima[-1].min())

    def update(self, index: npt.NDArray[np.int64], weight: npt.ArrayLike) -> None:
        """Change weights.

        Args:
            index: ``[n]``. The last of duplicates counts.
            weight: ``[n]`` or one for all; finite and not negative.
        """
        self.weights[index] = weight
        for height, minima in enumerate(self._minima):
            index = index // _FAN_OUT
            if index.size > _TOP:  # a long write fills whole blocks; compute each of them once
                index = np.unique(index)
            sums = self._sums[height][index]
            # Zero is no weight.
            least = self._minima[height - 1][index] if height else np.where(sums > 0, sums, np.inf)
            self._sums[height + 1].reshape(-1)[index] = sums.sum(1)
            minima.reshape(-1)[index] = least.min(1)

    def search(self, mass: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return, for each mass, the least index whose inclusive cumulative sum exceeds it.

        A weight of zero is never found, whatever the rounding.

        Args:
            mass: Cumulative weights in ``[0, total)``, ``[n]``.
        """
        *lower, [top] = self._sums
        sums = top.cumsum(dtype=np.float64)
        mass = _within(mass, sums[-1])
        index = sums.searchsorted(mass, side="right")
        mass = mass - (sums[index] - top[index])
        rows = np.arange(len(mass))
        for level in reversed(lower):
            blocks = level[index]
            sums = blocks.cumsum(axis=1, dtype=np.float64)
            mass = _within(mass, sums[:, -1])
            child = (sums > mass[:, None]).argmax(axis=1)
            mass = mass - (sums[rows, child] - blocks[rows, child])
            index = index * _FAN_OUT + child
        return index


def _within(mass: npt.NDArray[np.float64], total: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Clamp ``mass`` to ``[0, total)`` against rounding."""
    return np.minimum(np.maximum(mass, 0.0), np.nextafter(total, 0.0))


class DevicePrioritizedSampler(PrioritizedSampler):
    """Draws as `PrioritizedSampler` does, on an accelerator and without synchronization.

    It sums all weights for every batch, which for a million transitions is faster than a
    synchronization. Priorities are not checked to be finite, and any one of duplicates counts.
    Arguments as for `PrioritizedSampler`; ``device`` is that of the transitions.
    """

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        *,
        device: torch.device | str,
    ) -> None:
        self.device = torch.device(device)
        super().__init__(max_capacity, alpha, beta, eps)

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        sums = self._values.cumsum(0, dtype=torch.float64)
        uniform = torch.rand(
            batch_size, dtype=torch.float64, device=self.device, generator=self._rng
        )
        drawn = torch.searchsorted(sums, uniform * sums[-1], right=True)
        drawn = drawn.clamp_max(len(storage) - 1)
        least = self._values.where(self._values > 0, float("inf")).amin()
        return drawn, {"priority_weight": (self._values[drawn] / least) ** -self.beta}

    def update_priority(self, index: Tensor, priority: Tensor | float) -> None:
        """See `PrioritizedSampler.update_priority`."""
        index = index.to(self.device, non_blocking=True).reshape(-1)
        given = torch.as_tensor(priority, dtype=torch.float32).detach()
        value = given.to(self.device, non_blocking=True).reshape(-1).expand(len(index))
        self._greatest = torch.maximum(self._greatest, value.amax())
        self._values[index] = (value + self.eps) ** self.alpha

    def _weights(self) -> Tensor:
        return self._values.cpu().clone()

    def _restore(self, weights: Tensor, greatest: float) -> None:
        self._values[: len(weights)] = weights.to(self.device)
        self._greatest.fill_(greatest)

    def _empty(self) -> None:
        self._values = torch.zeros(self.max_size, device=self.device)
        self._greatest = torch.ones((), device=self.device)
