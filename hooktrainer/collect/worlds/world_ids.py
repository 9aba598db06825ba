"""Makes tensor environments from an id, a factory or an object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import gymnasium as gym
import torch

from ...errors import ConfigError
from .adapters.foreign_world import name_of
from .adapters.kinds import adapt_world, is_functional, kind_of
from .tensor_world import TensorWorld

PREFIX: Final = "torch/"
"""The prefix of the ids; the rest is the id of Gymnasium's own environment."""

WORLDS: Final = {
    "torch/CartPole-v1": "classic_control:CartPoleWorld",
    "torch/Pendulum-v1": "classic_control:PendulumWorld",
    "torch/Acrobot-v1": "classic_control:AcrobotWorld",
    "torch/MountainCar-v0": "classic_control:MountainCarWorld",
    "torch/MountainCarContinuous-v0": "classic_control:MountainCarContinuousWorld",
}
"""By id, the module in this package and the class."""


def register() -> None:
    """Register the ids with Gymnasium as aliases of its own environments.

    So spaces, videos and saved policies are the same; only the collectors look up the tensor
    version.
    """
    for world in WORLDS:
        if world not in gym.registry:
            spec = gym.spec(world.removeprefix(PREFIX))
            gym.register(
                world,
                entry_point=spec.entry_point,
                vector_entry_point=spec.vector_entry_point,
                reward_threshold=spec.reward_threshold,
                max_episode_steps=spec.max_episode_steps,
            )


def is_world(env: Any) -> bool:
    """Whether ``env`` names, makes or is a tensor environment.

    That is an id such as ``"torch/CartPole-v1"``; a class or function with a parameter ``num_envs``
    without default; a `TensorWorld`; or an object that `adapt_world` accepts.
    """
    if isinstance(env, str):
        return env in WORLDS
    return kind_of(env) is not None or _makes_worlds(env)


def is_built(env: Any) -> bool:
    """Whether ``env`` is a batch of environments rather than a factory."""
    return kind_of(env) is not None and not is_functional(env)


def world_name(env: Any) -> str:
    """The name of an environment that `is_world` accepts."""
    if isinstance(env, str):
        return env
    kind, one = kind_of(env), env[0] if isinstance(env, tuple) else env
    if kind in ("world", "gymnax"):
        return str(one.name)
    if kind is not None:
        return type(env).__name__ if kind == "torchrl" else name_of(env)
    return str(getattr(env, "__qualname__", type(env).__name__))


def check_can_share(env: Any) -> None:
    """Raises ConfigError if ``env`` is built already, or is made without ``first_env``."""
    makes_shares = isinstance(env, str) or is_functional(env)
    if is_built(env) or not (makes_shares or _takes(env, "first_env")):
        raise ConfigError(
            f"{world_name(env)} is built already, or has no parameter first_env, so that several "
            "processes would all play the same episodes: give a function of num_envs and first_env."
        )


def make_tensor_world(
    env: Any,
    num_envs: int | None,
    *,
    device: torch.device | str = "cpu",
    first_env: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> TensorWorld:
    """Make a tensor environment.

    Args:
        env: An id such as ``"torch/CartPole-v1"``; a class or function that takes ``num_envs`` and
            optionally ``device`` and ``first_env``; or an object that `adapt_world` accepts. A
            `TensorWorld` is returned unchanged.
        num_envs: Number of environments.
        device: Device of the simulation.
        first_env: Index of the first environment in the run.
        env_kwargs: Further arguments of the factory.

    Raises:
        ConfigError: If it cannot be made, or has another number of environments.
    """
    kwargs = dict(env_kwargs or {})
    if is_built(env):
        world = adapt_world(env)
        if kwargs or num_envs not in (None, world.num_envs):
            raise ConfigError(
                f"{world.name} is built already, with {world.num_envs} environments: give num_envs="
                f"{world.num_envs} and no env_kwargs, or the function that builds it."
            )
        return world
    if num_envs is None:
        raise ConfigError("num_envs is missing: pass the number of environments.")
    make: Callable[..., Any] = _class_of(env) if isinstance(env, str) else env
    if is_functional(env):
        make = partial(adapt_world, env)
    name = world_name(env)
    given: dict[str, Any] = {
        "num_envs": num_envs,
        "device": torch.device(device),
        "first_env": first_env,
    }
    own = {key: value for key, value in given.items() if _takes(make, key)}
    try:
        made = make(**own, **kwargs)
    except TypeError as error:
        if not kwargs:
            raise
        raise ConfigError(f"{name} cannot be made with env_kwargs={kwargs}: {error}") from error
    try:
        made = adapt_world(made, **given)
    except ConfigError as error:
        raise ConfigError(f"{name} made no world: {error}") from None
    if made.num_envs != num_envs:
        raise ConfigError(
            f"{name} made a world of {made.num_envs} environments where {num_envs} were asked for."
        )
    return made


def _class_of(env_id: str) -> Callable[..., Any]:
    if env_id not in WORLDS:
        raise ConfigError(f"{env_id} is no tensor world. There are {', '.join(WORLDS)}.")
    module, name = WORLDS[env_id].split(":")
    made: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
    return made


def _takes(make: Callable[..., Any], name: str) -> bool:
    known = inspect.signature(make).parameters
    return name in known or any(one.kind is one.VAR_KEYWORD for one in known.values())


def _makes_worlds(env: Any) -> bool:
    if not callable(env):
        return False
    try:
        number = inspect.signature(env).parameters.get("num_envs")
    except (TypeError, ValueError):
        return False
    return number is not None and number.default is number.empty
