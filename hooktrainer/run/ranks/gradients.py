"""The mean of the gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from ...base.tensordicts import is_dtensor, sharded_as
from ...hooks.optimizer import parameters_of
from ...networks.ensemble import BatchRenorm
from ...networks.layers import RunningNorm
from .ranks import Ranks

_FIRST = 2**20  # bytes; the gradients that are known first go soon
_BUCKET = 25 * 2**20  # what torch's DistributedDataParallel sends at once, too


class AverageGradients:
    """Replaces the gradients of an optimizer by their mean over the ranks, before they are clipped.

    With equal shares on every rank that is the gradient of the loss's mean over all of them.

    Gradients are put together in buckets, the last layers' first, and a bucket is sent as soon as
    backward has computed what belongs to it. Buckets go in the same order on every rank. Gradients
    that backward does not announce, such as those of a compiled graph, are sent at the end. So any
    loss and any number of optimizers will do, if they are the same on every rank. Nothing is sent
    in a backward pass during which ``waits()`` is true, as while gradients are accumulated.
    """

    def __init__(
        self,
        ranks: Ranks,
        optimizer: torch.optim.Optimizer,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._waits = waits
        # A DTensor's gradient is averaged by fully_shard.
        own = [p for p in parameters_of(optimizer) if not is_dtensor(p)]
        self._buckets = [_Bucket(parameters, ranks) for parameters in _cut(own)]
        self._next = 0  # the first bucket that was not sent
        self._handles = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(self._note, bucket)
            )
            for bucket in self._buckets
            for parameter in bucket.parameters
        ]

    def __call__(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients of ``optimizer``: send what is left, and wait for all."""
        for bucket in self._buckets[self._next :]:
            bucket.send()
        for bucket in self._buckets:
            for parameter, mean in bucket.receive():
                parameter.grad = mean
        self._next = 0

    def close(self) -> None:
        """Remove the hooks of backward."""
        for handle in self._handles:
            handle.remove()

    def _note(self, bucket: _Bucket, parameter: torch.Tensor) -> None:
        if self._waits():
            return
        if id(parameter) in bucket.known:  # this is another backward, before a step
            for other in self._buckets:
                other.receive()
            self._next = 0
        bucket.known.add(id(parameter))
        for following in self._buckets[self._next :]:
            if len(following.known) < len(following.parameters):
                return
            following.send()
            self._next += 1


class _Bucket:
    def __init__(self, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        self.parameters = parameters
        self.known: set[int] = set()  # whose gradients backward has computed
        self._ranks = ranks
        self._sent: list[nn.Parameter] = []
        self._flat = torch.empty(0)
        self._arrive: Callable[[], None] | None = None

    def send(self) -> None:
        """Send the gradients there are."""
        grads = [p.grad.detach().reshape(-1) for p in self.parameters if p.grad is not None]
        if grads:
            self._sent = [p for p in self.parameters if p.grad is not None]
            self._flat = torch.cat(grads)
            self._arrive = self._ranks.send_mean(self._flat)

    def receive(self) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """Wait for the means of what was sent."""
        self.known.clear()
        if self._arrive is None:
            return []
        self._arrive()
        self._arrive = None
        pieces = torch.split(self._flat, [p.numel() for p in self._sent])
        return [(p, piece.view(p.shape)) for p, piece in zip(self._sent, pieces, strict=True)]


def _cut(parameters: Sequence[Any]) -> Iterator[list[nn.Parameter]]:
    """Parameters of one kind that are together no larger than a bucket, from the last on."""
    bucket: list[nn.Parameter] = []
    size, most = 0, _FIRST
    for parameter in reversed(parameters):
        kind = parameter.dtype, parameter.device
        alike = not bucket or kind == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or size + parameter.nbytes > most):
            yield bucket[::-1]
            bucket, size, most = [], 0, _BUCKET
        bucket.append(parameter)
        size += parameter.nbytes
    if bucket:
        yield bucket[::-1]


def tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module, each once."""
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """The running statistics of a module's normalization layers."""
    kinds = (RunningNorm, BatchRenorm, nn.modules.batchnorm._NormBase)
    return [b for part in module.modules() if isinstance(part, kinds) for b in part.buffers()]


# -- Networks whose parameters are shared out among the ranks, by torch's ``fully_shard`` (FSDP2).


def shard_parameters(network: nn.Module, ranks: Ranks) -> None:
    """Share the parameters of a network out among the ranks, so that each holds a part of each.

    They come together for the time of a forward or a backward pass. Give the network to a policy or
    a value network, and the parameters to an optimizer, afterwards. Every rank has to call the
    network equally often; `DataParallel` sees to that.

    Args:
        network: A module that is called through its ``forward``, on the device it is to stay on.
        ranks: The ranks.
    """
    if ranks.world_size == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranks.broadcast_tensors(tensors_of(network))
    device = next(network.parameters()).device
    mesh = init_device_mesh(device.type, (ranks.world_size,))
    fully_shard(network, mesh=mesh)
    network.register_load_state_dict_pre_hook(_share_state)  # type: ignore[no-untyped-call]


def whole(tensor: Any) -> Any:
    """A tensor's parts from all ranks together; every rank has to ask."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


def share_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer of shared parameters load a state that is whole."""
    optimizer.register_load_state_dict_pre_hook(_share_optimizer_state)


def _share_state(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, own in module.state_dict().items():
        if prefix + name in state_dict:
            state_dict[prefix + name] = sharded_as(state_dict[prefix + name], own)


def _share_optimizer_state(
    optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]
) -> dict[str, Any]:
    parameters: Sequence[torch.Tensor] = parameters_of(optimizer)
    state = {
        index: {key: sharded_as(value, parameters[index]) for key, value in entries.items()}
        for index, entries in state_dict["state"].items()
    }
    return {**state_dict, "state": state}
