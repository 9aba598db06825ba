"""`actor_of`: the actor for a policy of any kind."""

from __future__ import annotations

import torch
from tensordict import unravel_key
from tensordict.nn import TensorDictModuleBase

from ..errors import ConfigError
from .action_format import AnyActionFormat
from .actors import Actor, FunctionActor, Policy
from .buffers import ObservationRows
from .module_actor import ModuleActor


def actor_of(
    policy: Policy,
    buffers: ObservationRows,
    action_format: AnyActionFormat,
    num_envs: int,
    horizon: int,
    device: torch.device,
    in_full: bool = False,
) -> Actor:
    """What asks a policy for actions, one step of a rollout at a time.

    Args:
        policy: What `VectorCollector` takes.
        buffers: Where the observations are.
        action_format: What an action has to look like.
        num_envs: Number of environments.
        horizon: Steps of a rollout.
        device: Where the policy computes.
        in_full: Whether it is asked for all environments in every step of a rollout.

    Raises:
        ConfigError: If it reads what no environment gives.
    """
    rest = (buffers, action_format, num_envs, horizon, device)
    act, complete = getattr(policy, "act", None), getattr(policy, "complete", None)
    if callable(complete):
        act = getattr(policy, "sample", act)
    keys = [unravel_key(key) for key in getattr(policy, "in_keys", ())]
    missing = set(keys) - {unravel_key(leaf.key) for leaf in buffers.leaves}
    if callable(act) and not missing:
        return FunctionActor(act, *rest, keys=keys or None, complete=complete, in_full=in_full)
    if isinstance(policy, TensorDictModuleBase):
        return ModuleActor(policy, *rest)
    if callable(policy):
        return FunctionActor(policy, *rest)
    raise ConfigError(f"The policy reads {sorted(map(str, missing))}, which no environment gives.")
