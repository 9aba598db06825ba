"""Prioritized experience replay on an accelerator, which it does not wait for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError
from .buffer import check_not_empty


class DevicePrioritizedSampler:
    """Draws as `PrioritizedSampler` does, on the device where the transitions are.

    The sums of all weights are computed anew for every batch, which an accelerator does for a
    million transitions in less time than waiting would take. Nobody looks whether priorities are
    finite: they are those of a loss, which is looked at.

    Args:
        max_capacity: Capacity of the buffer.
        alpha: How much priorities count: 0 for uniform draws.
        beta: How much of the bias the importance weights correct: 1 for all of it.
        eps: Added to every priority, so that none is zero.
        device: Where the transitions are.
        stratified: Whether each draw of a batch comes from its own share of the total priority.

    Raises:
        ConfigError: If an argument cannot work.
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
        if alpha < 0 or beta < 0:
            raise ConfigError(
                f"DevicePrioritizedSampler: alpha={alpha} and beta={beta} must be >= 0."
            )
        self.max_size = max_capacity
        self.device = torch.device(device)
        self.stratified = stratified
        self._alpha = alpha
        self._beta = beta
        self._eps = eps
        self._empty()

    def sample(self, storage: Any, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw a batch.

        Args:
            storage: What is drawn from; it has a length.
            batch_size: Number of draws.

        Returns:
            Indices ``[batch_size]``, and ``"priority_weight"``, float32 ``[batch_size]``.

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
            index: Which, ``[n]``. If one is given several times, any of its priorities counts.
            priority: ``[n]``, or one for all; finite, and not negative.
            storage: Not used.
        """
        index = index.to(self.device, non_blocking=True).reshape(-1)
        given = torch.as_tensor(priority, dtype=torch.float32).detach()
        value = given.to(self.device, non_blocking=True).reshape(-1).expand(len(index))
        self._greatest = torch.maximum(self._greatest, value.amax())
        self._weights[index] = (value + self._eps) ** self._alpha

    def mark_update(self, index: Tensor, *, storage: Any = None) -> None:
        """Give new transitions the greatest priority there has been."""
        self.update_priority(index, self._greatest, storage=storage)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, which `PrioritizedSampler` can load, too."""
        return {
            "weights": self._weights.cpu().clone(),
            "max_priority": float(self._greatest),
            "alpha": self._alpha,
            "beta": self._beta,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ConfigError: If there are more priorities than this sampler has room for.
        """
        weights = state_dict["weights"]
        if len(weights) > self.max_size:
            raise ConfigError(
                f"the state holds {len(weights)} priorities, but max_capacity is "
                f"{self.max_size}: build the sampler with the capacity it was saved with."
            )
        self._empty()
        self._weights[: len(weights)] = weights.to(self.device)
        self._greatest.fill_(state_dict["max_priority"])
        self._alpha, self._beta = state_dict["alpha"], state_dict["beta"]

    def _empty(self) -> None:
        self._weights = torch.zeros(self.max_size, device=self.device)
        self._greatest = torch.ones((), device=self.device)
