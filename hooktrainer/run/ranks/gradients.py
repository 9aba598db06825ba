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

_FIRST = 2**20  # bytes of the first bucket, small so that it is sent early
_BUCKET = 25 * 2**20  # as in torch's DistributedDataParallel


class AverageGradients:
    """Replaces the gradients of an optimizer by their mean over the ranks, before they are clipped.

    With equal shares on every rank that is the gradient of the loss's mean over all of them.

    Gradients are grouped in buckets, those of the last layers first. Buckets are sent in the same
    order on every rank, each as soon as the backward pass has computed its gradients. Gradients
    without a backward hook, such as those of a compiled graph, are sent at the end. Any loss and
    any number of optimizers work, if they are the same on every rank. Nothing is sent in a backward
    pass during which ``waits()`` is true, as while gradients are accumulated.
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
        """Send the remaining gradients, and wait for the means of all."""
        for bucket in self._buckets[self._next :]:
            bucket.send()
        for bucket in self._buckets:
            for parameter, mean in bucket.receive():
                parameter.grad = mean
        self._next = 0

    def close(self) -> None:
        """Remove the backward hooks."""
        for handle in self._handles:
            handle.remove()

    def _note(self, bucket: _Bucket, parameter: torch.Tensor) -> None:
        if self._waits():
            return
        if id(parameter) in bucket.known:  # a second backward pass before a step
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
        """Send the gradients that exist."""
        grads = [p.grad.detach().reshape(-1) for p in self.parameters if p.grad is not None]
        if grads:
            self._sent = [p for p in self.parameters if p.grad is not None]
            self._flat = torch.cat(grads)
            self._arrive = self._ranks.send_mean(self._flat)

    def receive(self) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """Wait for the means, and return them by parameter."""
        self.known.clear()
        if self._arrive is None:
            return []
        self._arrive()
        self._arrive = None
        pieces = torch.split(self._flat, [p.numel() for p in self._sent])
        return [(p, piece.view(p.shape)) for p, piece in zip(self._sent, pieces, strict=True)]


def _cut(parameters: Sequence[Any]) -> Iterator[list[nn.Parameter]]:
    """Yield buckets of parameters of one dtype and device, from the last parameter on."""
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
    """Return the parameters and buffers of a module, each once."""
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """Return the running statistics of a module's normalization layers."""
    kinds = (RunningNorm, BatchRenorm, nn.modules.batchnorm._NormBase)
    return [b for part in module.modules() if isinstance(part, kinds) for b in part.buffers()]


# -- Networks whose parameters are sharded over the ranks by torch's ``fully_shard`` (FSDP2).


def shard_parameters(network: nn.Module, ranks: Ranks) -> None:
    """Shard the parameters of a network over the ranks.

    They are gathered for a forward or a backward pass. Call this before the network is given to a
    policy or a value network, and its parameters to an optimizer. Every rank has to call the
    network equally often; `DataParallel` ensures that.

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
    network.register_load_state_dict_pre_hook(_shard_state)  # type: ignore[no-untyped-call]


def full_tensor(tensor: Any) -> Any:
    """Gather a `DTensor` from all ranks, which all have to call this; return others unchanged."""
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


def shard_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimizer of sharded parameters load an unsharded state."""
    optimizer.register_load_state_dict_pre_hook(_shard_optimizer_state)


def _shard_state(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, own in module.state_dict().items():
        if prefix + name in state_dict:
            state_dict[prefix + name] = sharded_as(state_dict[prefix + name], own)


def _shard_optimizer_state(
    optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]
) -> dict[str, Any]:
    parameters: Sequence[torch.Tensor] = parameters_of(optimizer)
    state = {
        index: {key: sharded_as(value, parameters[index]) for key, value in entries.items()}
        for index, entries in state_dict["state"].items()
    }
    return {**state_dict, "state": state}
