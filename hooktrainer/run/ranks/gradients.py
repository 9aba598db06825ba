"""The mean of the gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...base.tensordicts import is_dtensor
from ...loop.check_trainer import parameters_of
from ...networks.normalization import RunningNorm
from .ranks import Ranks

_FIRST = 2**20  # bytes; the gradients that are known first go soon
_BUCKET = 25 * 2**20  # what torch's DistributedDataParallel sends at once, too


class AverageGradients:
    """Replaces the gradients of an optimizer by their mean over the ranks, before they are clipped.

    With equal shares on every rank that is the gradient of the loss's mean over all of them.

    Gradients are put together in buckets, the last layers' first, and a bucket is sent as soon as
    backward has computed what belongs to it, while it goes on with the layers before. Buckets go in
    the same order on every rank. What backward did not tell of, such as gradients that a compiled
    graph computed, or those of a step that updates only some parameters, is sent at the end; so it
    does for any loss and any number of optimizers, provided that they are the same on every rank.

    Args:
        ranks: The ranks.
        optimizer: Whose gradients these are.
    """

    def __init__(self, ranks: Ranks, optimizer: torch.optim.Optimizer) -> None:
        self._ranks = ranks
        self._buckets = list(_buckets_of(optimizer))
        self._next = 0  # the first bucket that was not sent
        self._handles = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._noting(bucket)
            )
            for bucket in self._buckets
            for parameter in bucket.parameters
        ]

    def __call__(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients of ``optimizer``: send what is left, and wait for all."""
        with torch.no_grad():
            for bucket in self._buckets[self._next :]:
                bucket.send(self._ranks)
            self._next = 0
            for bucket in self._buckets:
                bucket.receive()

    def close(self) -> None:
        """Have backward tell nothing more."""
        for handle in self._handles:
            handle.remove()

    def _noting(self, bucket: _Bucket) -> Callable[[torch.Tensor], None]:
        def note(parameter: torch.Tensor) -> None:
            if id(parameter) in bucket.known:
                self._begin_anew()  # that was another backward, whose step was not taken
            bucket.known.add(id(parameter))
            while self._next < len(self._buckets):
                following = self._buckets[self._next]
                if len(following.known) < len(following.parameters):
                    return
                with torch.no_grad():
                    following.send(self._ranks)
                self._next += 1

        return note

    def _begin_anew(self) -> None:
        for bucket in self._buckets:
            bucket.drop()
        self._next = 0


class _Bucket:
    """Gradients of one kind, sent together as views of one flat tensor."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        flat: torch.Tensor,
        views: Sequence[torch.Tensor],
    ) -> None:
        self.parameters = parameters
        self.known: set[int] = set()  # whose gradients backward has computed
        self._flat = flat
        self._views = views
        self._sent: list[nn.Parameter] = []
        self._results: Sequence[torch.Tensor] = ()
        self._arrive: Callable[[], None] | None = None

    def send(self, ranks: Ranks) -> None:
        """Send the gradients there are."""
        there = [
            (parameter, view)
            for parameter, view in zip(self.parameters, self._views, strict=True)
            if parameter.grad is not None
        ]
        if not there:
            return
        self._sent = [parameter for parameter, _ in there]
        if len(there) < len(self.parameters):
            sent = torch.cat([p.grad.reshape(-1) for p in self._sent])  # type: ignore[union-attr]
            pieces = torch.split(sent, [parameter.numel() for parameter in self._sent])
            self._results = [
                piece.view(p.shape) for piece, p in zip(pieces, self._sent, strict=True)
            ]
        else:
            sent, self._results = self._flat, self._views
            for parameter, view in there:
                if parameter.grad is not view:
                    view.copy_(parameter.grad)  # type: ignore[arg-type]
        self._arrive = ranks.send_mean(sent)

    def receive(self) -> None:
        """Wait for the means, and put them in the gradients' place."""
        if self._arrive is not None:
            self._arrive()
            for parameter, result in zip(self._sent, self._results, strict=True):
                parameter.grad = result
        self.known.clear()
        self._arrive = None

    def drop(self) -> None:
        """Forget what was sent."""
        if self._arrive is not None:
            self._arrive()
        self.known.clear()
        self._arrive = None


def _buckets_of(optimizer: torch.optim.Optimizer) -> Iterator[_Bucket]:
    """The buckets of an optimizer's gradients, those that backward computes first at first."""
    groups = getattr(optimizer, "flat_groups", None)
    if groups is not None:  # FlatAdam has memory for them, side by side
        for group in reversed(groups):
            flat, views = group.grads
            end = len(views)
            for parameters in _cut(group.views):
                begin = end - len(parameters)
                own = views[begin:end]
                first = own[0].storage_offset()
                size = sum(view.numel() for view in own)
                yield _Bucket(parameters, flat[first : first + size], own)
                end = begin
        return
    # A DTensor's gradient is averaged by fully_shard.
    for parameters in _cut([p for p in parameters_of(optimizer) if not is_dtensor(p)]):
        flat = parameters[0].new_empty(sum(parameter.numel() for parameter in parameters))
        pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
        views = [piece.view(own.shape) for piece, own in zip(pieces, parameters, strict=True)]
        yield _Bucket(parameters, flat, views)


def _cut(parameters: Sequence[Any]) -> Iterator[list[nn.Parameter]]:
    """Parameters of one kind that are together no larger than a bucket, from the last on."""
    bucket: list[nn.Parameter] = []
    size, most = 0, _FIRST
    for parameter in reversed(parameters):
        alike = not bucket or _kind(parameter) == _kind(bucket[0])
        if bucket and (not alike or size + parameter.nbytes > most):
            yield bucket[::-1]
            bucket, size, most = [], 0, _BUCKET
        bucket.append(parameter)
        size += parameter.nbytes
    if bucket:
        yield bucket[::-1]


def _kind(parameter: torch.Tensor) -> tuple[torch.dtype, torch.device]:
    return parameter.dtype, parameter.device


def tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module, each once."""
    return [t.detach() for t in (*module.parameters(), *module.buffers())]


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """The running statistics of a module's normalization layers."""
    kinds = (RunningNorm, nn.modules.batchnorm._NormBase)
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


def whole_tree(tree: Any) -> Any:
    """A state tree with its tensors whole, so that it does not depend on the number of ranks."""
    if isinstance(tree, Mapping) and _has_parts(tree):
        return {key: whole_tree(value) for key, value in tree.items()}
    return whole(tree)


def share_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer of shared parameters load a state that is whole."""
    optimizer.register_load_state_dict_pre_hook(_share_optimizer_state)


def _has_parts(tree: Mapping[Any, Any]) -> bool:
    values = tree.values()
    return any(is_dtensor(v) or (isinstance(v, Mapping) and _has_parts(v)) for v in values)


def _part(value: Any, like: Any) -> Any:
    """This rank's part of a whole tensor that is as large as ``like``."""
    is_whole = isinstance(value, torch.Tensor) and not is_dtensor(value)
    if not is_dtensor(like) or not is_whole or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def _share_state(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, own in module.state_dict().items():
        if prefix + name in state_dict:
            state_dict[prefix + name] = _part(state_dict[prefix + name], own)


def _share_optimizer_state(
    optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]
) -> dict[str, Any]:
    parameters: Sequence[torch.Tensor] = parameters_of(optimizer)
    state = {
        index: {key: _part(value, parameters[index]) for key, value in entries.items()}
        for index, entries in state_dict["state"].items()
    }
    return {**state_dict, "state": state}
