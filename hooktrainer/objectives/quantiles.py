"""Quantile regression (Dabney et al., 2018, arXiv:1710.10044)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import smooth_l1_loss


def quantile_huber(quantiles: Tensor, targets: Tensor, fractions: Tensor) -> Tensor:
    """The quantile Huber loss with threshold 1, ``[*batch]``.

    It is summed over the quantiles, and is the mean over the targets.

    Args:
        quantiles: Estimates of the quantiles, ``[*batch, quantiles]``.
        targets: Samples, or quantiles, of the target distribution, ``[*batch, targets]``.
        fractions: The probability below each quantile, ``[quantiles]`` or ``[*batch, quantiles]``.
    """
    shape = (*quantiles.shape, targets.shape[-1])
    estimates, samples = quantiles.unsqueeze(-1).expand(shape), targets.unsqueeze(-2).expand(shape)
    distance = smooth_l1_loss(estimates, samples, reduction="none")
    weight = (fractions.unsqueeze(-1) - (samples < estimates).to(fractions.dtype)).abs()
    return (weight * distance).mean(-1).sum(-1)
