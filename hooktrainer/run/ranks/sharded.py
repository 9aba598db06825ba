"""Networks whose parameters are shared out among the ranks, by torch's ``fully_shard`` (FSDP2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...base.shards import is_part
from ...loop.check_trainer import parameters_of
from .gradients import tensors_of
from .ranks import Ranks


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
    return tensor.full_tensor() if is_part(tensor) else tensor


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
    return any(is_part(v) or (isinstance(v, Mapping) and _has_parts(v)) for v in values)


def _part(value: Any, like: Any) -> Any:
    """This rank's part of a whole tensor that is as large as ``like``."""
    is_whole = isinstance(value, torch.Tensor) and not is_part(value)
    if not is_part(like) or not is_whole or value.shape != like.shape:
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
