"""`BatchRenorm`: batch renormalization, for networks that learn and act differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class BatchRenorm(nn.Module):
    """Batch renormalization (Ioffe, 2017, arXiv:1702.03275), of one or of several networks at once.

    It normalizes by running statistics, except within `batch_statistics`, which a loss enters.
    There it normalizes by those of the batch, corrected towards the running ones after a warm-up,
    and updates the running ones. Training and evaluation mode make no difference, so that policies
    act by running statistics wherever they act.

    Args:
        features: Size of the last dimension.
        networks: Leading dimensions of the input, whose statistics and parameters are separate.
        momentum: Weight of a batch in the running statistics.
        warm_up: Batches that are normalized by their own statistics alone.
        eps: Added to the variance.

    Attributes:
        mean: ``[*networks, 1, features]``.
        var: Unbiased variance, likewise.
        batches: Number of batches in the statistics, int64.
    """

    largest_scale = 3.0
    largest_shift = 5.0
    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(
        self,
        features: int,
        networks: tuple[int, ...] = (),
        *,
        momentum: float = 0.01,
        warm_up: int = 100_000,
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        shape = (*networks, 1, features)
        self.learns = False
        self.momentum, self.warm_up, self.eps = momentum, warm_up, eps
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, ``[*networks, batch, features]``; one: ``[*batch, features]``."""
        if not self.learns:
            out = (x - self.mean) * (self.var + self.eps).rsqrt()
        else:
            out = self._by_batch(x)
        return torch.addcmul(self.bias, out, self.weight).reshape(x.shape)

    def _by_batch(self, x: Tensor) -> Tensor:
        x = x.reshape(*self.mean.shape[:-2], -1, x.shape[-1])
        var, mean = torch.var_mean(x, -2, keepdim=True)
        std = (var + self.eps).sqrt()
        with torch.no_grad():
            running = (self.var + self.eps).sqrt()
            is_warm = self.batches > self.warm_up
            scale = (std / running).clamp(1 / self.largest_scale, self.largest_scale)
            shift = ((mean - self.mean) / running).clamp(-self.largest_shift, self.largest_shift)
            scale, shift = torch.where(is_warm, scale, 1.0), torch.where(is_warm, shift, 0.0)
            self.mean.lerp_(mean, self.momentum)
            self.var.lerp_(var, self.momentum)
            self.batches.add_(1)
        return (x - mean) / std * scale + shift

    def reset_parameters(self) -> None:
        """Restore the initial parameters and statistics."""
        for ones, zeros in ((self.weight.data, self.bias.data), (self.var, self.mean)):
            ones.fill_(1.0)
            zeros.zero_()
        self.batches.zero_()


@contextmanager
def batch_statistics(network: nn.Module, learns: bool = True) -> Iterator[None]:
    """In the block, the `BatchRenorm` layers of ``network`` use and update batch statistics.

    Args:
        network: Holds the layers.
        learns: ``False`` leaves them as they are.
    """
    norms = [m for m in network.modules() if isinstance(m, BatchRenorm)] if learns else []
    for norm in norms:
        norm.learns = True
    try:
        yield
    finally:
        for norm in norms:
            norm.learns = False
