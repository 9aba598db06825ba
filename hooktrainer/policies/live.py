"""A policy in training as a function of tensors: observations and hidden states to actions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import set_interaction_type
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import ConfigError
from ..networks.inference import Inference
from .interface import MASK

IS_INIT = "is_init"


class LivePolicy(nn.Module):
    """A policy as a function of tensors: observations ``keys`` and hidden states to all actions."""

    def __init__(
        self,
        policy: nn.Module,
        keys: Sequence[NestedKey],
        hidden: Sequence[NestedKey],
        actions: Sequence[NestedKey],
    ) -> None:
        super().__init__()
        self.policy = policy
        self.keys = list(keys)
        self.hidden = list(hidden)
        self.actions = list(actions)
        self._never = torch.zeros(0, 1, dtype=torch.bool).as_subclass(_Constant)

    def prepare(self, batch: int) -> None:
        """Make constants for this batch size, before recording."""
        self._never = torch.zeros(batch, 1, dtype=torch.bool).as_subclass(_Constant)

    @torch.no_grad()
    def forward(self, *inputs: Tensor, random: bool = False) -> tuple[Tensor, ...]:
        """Return the best or random actions and the next hidden states, ``[batch, ...]`` each."""
        mode = InteractionType.RANDOM if random else InteractionType.DETERMINISTIC
        with set_interaction_type(mode):
            if getattr(self.policy, "in_keys", None) is None:
                out = self._call_on_observations(*inputs)
            elif not self.hidden and callable(act := getattr(self.policy, "act", None)):
                out = act(*inputs)
            else:
                return self._call_on_tensordict(*inputs)
        return tuple(out[key] for key in self.actions) if isinstance(out, Mapping) else (out,)

    def _call_on_observations(self, *inputs: Tensor) -> Any:
        """Call a function as `VectorCollector` does, with the mask if it takes one."""
        call = getattr(self.policy, "act", self.policy)
        given = dict(zip(self.keys, inputs, strict=True))
        mask = {}
        if len(given) > 1 and MASK in given and MASK in _parameters(call):
            mask = {MASK: given.pop(MASK)}
        if len(given) == 1:
            return call(*given.values(), **mask)
        tree: dict[str, Any] = {}
        for key, value in given.items():
            *parents, name = parts(key)
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = value
        return call(tree, **mask)

    def _call_on_tensordict(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        batch = len(inputs[0])
        data = TensorDict({}, batch_size=[batch])
        for key, value in zip([*self.keys, *self.hidden], inputs, strict=True):
            data.set(key, value)
        if IS_INIT in list(getattr(self.policy, "in_keys", ())):
            data.set(IS_INIT, self._never)
        data = self.policy(data)
        following = [("next", *parts(key)) for key in self.hidden]
        return tuple(data.get(key) for key in [*self.actions, *following])


def read_keys(
    policy: nn.Module, observed: Sequence[NestedKey]
) -> tuple[list[NestedKey], list[NestedKey]]:
    """Return the observations that a policy reads, and its hidden states."""
    in_keys = getattr(policy, "in_keys", None)
    if in_keys is None:
        return list(observed), []
    writes = [unravel_key(key) for key in getattr(policy, "out_keys", ())]
    keys = [unravel_key(key) for key in in_keys]
    hidden = [key for key in keys if ("next", *parts(key)) in writes]
    reads = [key for key in keys if key not in hidden and key != IS_INIT]
    if missing := [key for key in reads if key not in observed]:
        raise ConfigError(
            f"the policy reads {missing}, and the environment gives {list(observed)}: the keys "
            "must agree for the policy to be saved."
        )
    return reads, hidden


def first_states(policy: nn.Module, hidden: Sequence[NestedKey]) -> dict[NestedKey, Tensor]:
    """The hidden states at the start of an episode, without a batch dimension."""
    if not hidden:
        return {}
    from torchrl.modules.utils import get_primers_from_module

    primer = get_primers_from_module(policy, warn=False)
    first = TensorDict({}, batch_size=[])
    first = first if primer is None else primer(first)
    if missing := [key for key in hidden if first.get(key, None) is None]:
        raise ConfigError(
            f"the shape of the hidden state {missing} is unknown: the module that has it needs a "
            "method make_tensordict_primer(), as torchrl.modules.LSTMModule and GRUModule have."
        )
    return {key: first.get(key).cpu() for key in hidden}


def without_numpy(policy: nn.Module) -> None:
    """Have a policy's networks evaluated by torch, so that it can be recorded."""
    for module in policy.modules():
        for value in vars(module).values():
            if isinstance(value, Inference):
                value.use_torch()


def parts(key: NestedKey) -> tuple[str, ...]:
    """A key as a tuple."""
    return (key,) if isinstance(key, str) else tuple(key)


class _Constant(Tensor):
    """The value of ``is_init`` while recording: no episode begins while a saved policy plays.

    What a module computes from it alone is computed at once, so that it may branch on the result.
    Combined with other tensors it has values of this batch alone, which recording refuses. Players
    reset the hidden states.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func.__name__ == "where" and isinstance(args[0], cls):
                with _disable_current_modes():
                    return args[1] if args[0].all() else args[2]  # equal in all rows
            if not all(isinstance(a, cls) for a in args if isinstance(a, Tensor)):
                plain = [a.as_subclass(Tensor) if isinstance(a, cls) else a for a in args]
                return func(*plain, **(kwargs or {}))
            with _disable_current_modes():
                out = func(*args, **(kwargs or {}))
                if isinstance(out, Tensor):
                    return out.as_subclass(cls) if out.dim() else out.item()
                return out


def _parameters(function: Any) -> Any:
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError):
        return ()
