"""The state of a scalar environment as a short text, where all of it is plain data.

A Gymnasium environment is a chain of wrappers around a base. Where every attribute of every layer
is plain (numbers, strings, NumPy arrays and generators, containers of these) or a constant (a
space, a class, a function), these attributes and the generators are the whole state.

A layer may say the state of itself and of all within it: by a method ``episode_state()``, which
returns plain data, and ``set_episode_state(state)``, which goes back there.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd

from .codec import NotPlainError, dumps, loads

# Never part of an episode's state, and not to be copied.
_CONSTANTS = (
    gym.Space,
    EnvSpec,
    type,
    enum.Enum,
    np.dtype,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)
_DATA = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    np.ndarray,
    np.generic,
    np.random.Generator,
    np.random.RandomState,
)


def snapshot(env: gym.Env[Any, Any]) -> str:
    """The state of ``env`` and all its wrappers.

    Raises:
        NotPlainError: If part of the state is not plain data.
    """
    layers = _layers(env)
    states = [
        layer.episode_state()
        if says_its_state(layer)
        else {name: value for name, value in vars(layer).items() if not _is_constant(value, layers)}
        for layer in layers
    ]
    try:
        return dumps(states)
    except NotPlainError:
        for layer, state in zip(layers, states, strict=True):
            for name, value in state.items():
                _check(f"{type(layer).__name__}.{name}", value)
        raise


def restore(env: gym.Env[Any, Any], text: str) -> None:
    """Give ``env`` the state that `snapshot` took of one that was built the same way.

    Raises:
        ValueError: If the environments have different wrappers.
    """
    layers = _layers(env)
    states = loads(text, [{} if says_its_state(layer) else vars(layer) for layer in layers])
    if len(states) != len(layers):
        raise ValueError(f"the saved environment has {len(states)} layers, this one {len(layers)}")
    for layer, state in zip(layers, states, strict=True):
        if says_its_state(layer):
            layer.set_episode_state(state)
            continue
        for name, value in state.items():
            setattr(layer, name, value)


def says_its_state(layer: Any) -> bool:
    """Whether a layer says the state of itself and of all within it."""
    return hasattr(type(layer), "episode_state")


def layer_that_says(env: gym.Env[Any, Any]) -> str:
    """The name of the layer that says its state; empty if there is none."""
    innermost = _layers(env)[-1]
    return type(innermost).__name__ if says_its_state(innermost) else ""


def foreign_part(env: gym.Env[Any, Any]) -> str:
    """The first part of ``env`` that a copy in Python may not copy; empty if there is none."""
    seen: set[int] = set()
    for layer in _layers(env):
        if says_its_state(layer):
            break
        for name, value in vars(layer).items():
            if not (_is_constant(value, _layers(env)) or _is_copyable(value, seen)):
                return f"{type(layer).__name__}.{name} is a {_type_name(value)}"
    return ""


def layer_with_moments(env: gym.Env[Any, Any]) -> str:
    """The name of the first wrapper that keeps running moments; empty if there is none."""
    for layer in _layers(env):
        if any(isinstance(value, RunningMeanStd) for value in vars(layer).values()):
            return type(layer).__name__
    return ""


class _Reference:
    """An object that is nothing but its attributes."""


def _is_copyable(value: Any, seen: set[int]) -> bool:
    if id(value) in seen:
        return True
    seen.add(id(value))
    if isinstance(value, dict):
        return all(_is_copyable(part, seen) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return all(_is_copyable(item, seen) for item in value)
    if isinstance(value, (*_CONSTANTS, *_DATA)):
        return True
    # An object with memory of its own, beside its attributes, comes from an extension.
    plain = type(value).__basicsize__ == _Reference.__basicsize__ and hasattr(value, "__dict__")
    return plain and all(_is_copyable(part, seen) for part in vars(value).values())


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers and the base, from without; what a layer speaks for is not looked into."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper) and not says_its_state(layers[-1]):
        layers.append(layers[-1].env)
    return layers


def _is_constant(value: Any, layers: list[Any]) -> bool:
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    return isinstance(value, _CONSTANTS) or any(owner is layer for layer in layers)


def _check(name: str, value: Any) -> None:
    try:
        dumps(value)
    except NotPlainError as error:
        raise NotPlainError(f"{name} is {error}") from None
