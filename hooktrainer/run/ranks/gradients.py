"""The mean of the gradients over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ...loop.check_trainer import parameters_of
from ...networks.normalization import RunningNorm
from .ranks import Ranks

_BUCKET = 25 * 2**20  # bytes; what torch's DistributedDataParallel sends at once, too


class AverageGradients:
    """Replaces the gradients of an optimizer by their mean over the ranks, before they are clipped.

    With equal shares on every rank that is the gradient of the loss's mean over all of them. Small
    gradients are sent side by side as one tensor, large ones as they are, several at a time.

    It stands between backward and clipping, so it does for any loss, any number of optimizers and
    steps that update only some of the parameters, provided that they are the same on every rank.

    Args:
        ranks: The ranks.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def __call__(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients of ``optimizer``."""
        flat = getattr(optimizer, "flat_grads", None)  # FlatAdam has them side by side already
        if flat is not None:
            self._ranks.average(flat())
            return
        grads = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
        # A DTensor's gradient was averaged by fully_shard.
        buckets = list(_buckets([grad for grad in grads if type(grad) is torch.Tensor]))
        sent = [b[0] if len(b) == 1 else torch.cat([g.reshape(-1) for g in b]) for b in buckets]
        sent = [tensor.contiguous() for tensor in sent]
        self._ranks.average(sent)
        for bucket, mean in zip(buckets, sent, strict=True):
            pieces = _split(mean, bucket) if len(bucket) > 1 else [mean]
            for grad, piece in zip(bucket, pieces, strict=True):
                if piece is not grad:
                    grad.copy_(piece.view(grad.shape))


def _buckets(grads: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Gradients of one kind that fit into one message together."""
    bucket: list[torch.Tensor] = []
    size = 0
    for grad in grads:
        alike = not bucket or (grad.dtype, grad.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or size + grad.nbytes > _BUCKET):
            yield bucket
            bucket, size = [], 0
        bucket.append(grad)
        size += grad.nbytes
    if bucket:
        yield bucket


def _split(mean: torch.Tensor, bucket: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return torch.split(mean, [grad.numel() for grad in bucket])


def tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module, each once."""
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """The running statistics of a module's normalization layers."""
    kinds = (RunningNorm, nn.modules.batchnorm._NormBase)
    return [b for part in module.modules() if isinstance(part, kinds) for b in part.buffers()]
