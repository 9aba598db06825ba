"""The weights of a policy: out of one, into another, and which policies a copy can follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from ..base.tensordicts import is_sharded
from ..errors import ConfigError

Weights = Mapping[str, Any]


def check_can_follow(policy: Any) -> None:
    """Refuse a policy whose weights cannot be handed over: its copy would go stale unnoticed.

    Raises:
        ConfigError: Saying why.
    """
    if policy is None:
        return
    methods = (getattr(policy, name, None) for name in ("state_dict", "load_state_dict"))
    if not all(map(callable, methods)):
        raise ConfigError(
            f"the policy is a {type(policy).__name__} without state_dict and load_state_dict, so a "
            "copy of it could not follow the learner: give a module, or add these methods."
        )
    if is_sharded(policy):
        raise ConfigError(
            "the policy's parameters are shared out among the ranks, which collect together: "
            "there is nothing to overlap, leave out --overlap."
        )


def weights_of(policy: Any, *, copies: bool = False) -> Weights | None:
    """A policy's state, tensors on the CPU; ``None`` for no policy.

    Args:
        policy: The policy.
        copies: Whether the tensors are copies, on the policy's device, that stay as they are when
            the policy is trained.
    """
    if policy is None:
        return None
    return {
        key: (value.detach().clone() if copies else value.detach().cpu())
        if isinstance(value, torch.Tensor)
        else value
        for key, value in policy.state_dict().items()
    }


def update_policy(policy: Any, source: Any) -> None:
    """Copy what a policy is to become; nothing is done for ``None`` and for the policy itself.

    Args:
        policy: The policy.
        source: A module, a TensorDict of parameters or a state dict.

    Raises:
        TypeError: If the policy has no parameters.
    """
    if source is None or source is policy:
        return
    if not isinstance(policy, torch.nn.Module):
        raise TypeError(
            f"The policy is a {type(policy).__name__}, which has no parameters to update."
        )
    if isinstance(source, TensorDictBase):
        TensorDict.from_module(policy).data.update_(source.data)
    elif isinstance(source, torch.nn.Module):
        policy.load_state_dict(source.state_dict())
    else:
        policy.load_state_dict(source)
