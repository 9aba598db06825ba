"""How a policy is asked for actions, one step of a rollout at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from tensordict import NestedKey, unravel_key

from ..errors import ConfigError
from .buffers import OutputBuffers, StepBuffers
from .spaces import MASK, ActionFormat, Array


class SupportsAct(Protocol):
    """A policy with the fast interface."""

    @property
    def act(self) -> Callable[..., Any]:
        """Takes observations and returns a dict with ``"action"``."""


Policy = Callable[..., Any] | SupportsAct


class Actor(Protocol):
    """A policy over the observations of one `StepBuffers`."""

    @property
    def is_laid_out(self) -> bool:
        """Whether the policy has been called, so that its outputs are known."""

    def act(self, t: int) -> Array:
        """Actions for the observations of step ``t``, recorded with all other outputs."""

    def skip(self, t: int) -> None:
        """Note that the policy is not asked in step ``t``."""

    def begin(self, envs: Sequence[int]) -> None:
        """Note that these environments are at the start of an episode."""

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """What the policy wrote in this rollout, ``[num_envs, time, ...]`` each.

        Args:
            blank: Whether the policy was not asked: zeros in place of its outputs.
        """

    def state_dict(self) -> dict[str, Any]:
        """What is carried from one rollout to the next."""

    def check(self, state_dict: dict[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from another policy."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class FunctionActor:
    """An `Actor` for a function of the observations.

    Args:
        function: Takes the observations and returns the actions, or a dict with ``"action"`` and
            anything else to record; tensors and NumPy arrays both do.
        buffers: Where the observations are.
        action_format: What an action has to look like.
        num_envs: Number of environments.
        horizon: Steps of a rollout.
        device: Where the function computes.
        keys: The observations it takes, one argument each. ``None`` for all of them in one
            argument: a tensor ``[num_envs, ...]``, or a dict of tensors where there are several. An
            action mask is then passed as ``action_mask=`` if the signature has that name.
        complete: Turns what the function returned into what is recorded, for a whole rollout at
            once, ``[num_envs, time, ...]``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        buffers: StepBuffers,
        action_format: ActionFormat,
        num_envs: int,
        horizon: int,
        device: torch.device,
        keys: Sequence[NestedKey] | None = None,
        complete: Callable[[dict[NestedKey, torch.Tensor]], dict[NestedKey, torch.Tensor]]
        | None = None,
    ) -> None:
        self._complete = complete
        self._outputs = OutputBuffers(num_envs, horizon)
        self._function = function
        self._format = action_format
        self._num_envs = num_envs
        self._device = None if device.type == "cpu" else device
        rows = {
            unravel_key(leaf.key): tensors
            for leaf, tensors in zip(buffers.leaves, buffers.inputs, strict=True)
        }
        self._masks: Sequence[torch.Tensor] | None = None
        if keys is None and len(rows) > 1 and _has_parameter(function, MASK):
            self._masks = rows.pop(MASK, None)
        # Made once: for each step the arguments of the call.
        self._arguments: list[tuple[Any, ...]] = (
            list(zip(*(rows[key] for key in keys), strict=True)) if keys else _joined(rows)
        )

    @property
    def is_laid_out(self) -> bool:
        """Whether the policy has been called, so that its outputs are known."""
        return bool(self._outputs)

    def act(self, t: int) -> Array:
        """Actions for the observations of step ``t``, recorded with all other outputs."""
        arguments = self._arguments[t]
        if self._device is not None:
            arguments = _to(arguments, self._device)
        if self._masks is None:
            result = self._function(*arguments)
        else:
            result = self._function(*arguments, action_mask=_to(self._masks[t], self._device))
        outputs = result if isinstance(result, Mapping) else {"action": result}
        if not self._outputs:
            self._check(outputs)
        self._outputs.write(t, outputs)
        return as_array(outputs["action"])

    def skip(self, t: int) -> None:
        """Nothing is carried from step to step."""

    def begin(self, envs: Sequence[int]) -> None:
        """Nothing is carried from step to step."""

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """What the function returned in this rollout, ``[num_envs, time, ...]`` each."""
        outputs = self._outputs.tensors(blank)
        if self._complete is None:
            return outputs
        completed = self._complete(outputs)
        return {k: v.zero_() for k, v in completed.items()} if blank else completed

    def state_dict(self) -> dict[str, Any]:
        """Nothing is carried from rollout to rollout."""
        return {}

    def check(self, state_dict: dict[str, Any]) -> None:
        """Nothing to check."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to restore."""

    def _check(self, outputs: Mapping[NestedKey, Any]) -> None:
        if "action" not in outputs:
            raise ConfigError(f"The policy returned {list(outputs)}; one key has to be 'action'.")
        action = outputs["action"]
        if not hasattr(action, "shape"):
            raise ConfigError(
                f"The policy returned {type(action).__name__}; it has to return the actions as a "
                "tensor or an array, or a dict of these."
            )
        self._format.check(as_array(action), self._num_envs)
        self._outputs.allocate(outputs)


def as_array(value: Any) -> Array:
    """A tensor on any device, or an array, as an array."""
    if isinstance(value, torch.Tensor):
        return (value if value.is_cpu else value.cpu()).numpy()
    return value


def _joined(rows: Mapping[NestedKey, Sequence[torch.Tensor]]) -> list[tuple[Any, ...]]:
    """For each step one argument: the only observation, or a nested dict of all of them."""
    if len(rows) == 1:
        return [(row,) for row in next(iter(rows.values()))]
    arguments = []
    for values in zip(*rows.values(), strict=True):
        tree: dict[str, Any] = {}
        for key, value in zip(rows, values, strict=True):
            *parents, name = (key,) if isinstance(key, str) else key
            place = tree
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = value
        arguments.append((tree,))
    return arguments


def _to(value: Any, device: torch.device | None) -> Any:
    if device is None:
        return value
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_to(item, device) for item in value)
    return value.to(device, non_blocking=True)


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    target = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return name in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False
