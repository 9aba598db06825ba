"""Observations normalized by their running mean and variance, inside the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningNorm(nn.Module):
    """Subtracts the running mean and divides by the running standard deviation.

    It is a layer of the network, so that its statistics are saved and exported with the policy.
    They change only in `update`, which `hooktrainer.ObservationNormalizer` calls once a batch.

    Args:
        features: Size of the last dimension.
        clip: Bound of the result.
        eps: Added to the variance.

    Attributes:
        mean: ``[features]``, float64.
        var: Biased variance, ``[features]``, float64.
        count: Number of observations, a scalar, float64.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, features: int, clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.clip = clip
        self.eps = eps
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("var", torch.ones(features, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        # What `forward` uses, in single precision; buffers too, so that they move with the module.
        self.register_buffer("_shift", torch.zeros(features))
        self.register_buffer("_scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, ``[*batch, features]``."""
        return ((x - self._shift) * self._scale).clamp(-self.clip, self.clip)

    def invert(self, x: Tensor) -> Tensor:
        """The inverse of `forward` without clipping, ``[*batch, features]``."""
        return x / self._scale + self._shift

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add ``x``, ``[*batch, features]``, to the statistics (Chan et al., 1979)."""
        x = x.reshape(-1, x.shape[-1]).double()
        var, mean = torch.var_mean(x, 0, correction=0)
        number = len(x)
        total = self.count + number
        delta = mean - self.mean
        squares = self.var * self.count + var * number + delta**2 * (self.count * number / total)
        self.mean += delta * (number / total)
        self.var.copy_(squares / total)
        self.count.copy_(total)
        self.refresh()

    def refresh(self) -> None:
        """Update the single-precision values that `forward` uses."""
        self._shift.copy_(self.mean)
        self._scale.copy_((self.var + self.eps).rsqrt())
