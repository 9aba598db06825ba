"""Tensor worlds from what a user names: an id, a function that makes one, or one that is there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import gymnasium as gym
import torch

from ...errors import ConfigError
from .tensor_world import TensorWorld

PREFIX: Final = "torch/"
"""What the ids of worlds begin with; what follows is the id of Gymnasium's own environment."""

WORLDS: Final = {
    "torch/CartPole-v1": "cartpole:CartPoleWorld",
    "torch/Pendulum-v1": "pendulum:PendulumWorld",
    "torch/Acrobot-v1": "acrobot:AcrobotWorld",
    "torch/MountainCar-v0": "mountain_car:MountainCarWorld",
    "torch/MountainCarContinuous-v0": "mountain_car:MountainCarContinuousWorld",
}
"""By id, in which file of this package its class is."""


def register() -> None:
    """Register the ids with Gymnasium: there they stand for its own environments.

    So spaces, videos and saved policies are what they are for these. Only what collects asks for
    the world behind an id.
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
    """Whether this names, makes or is a tensor world.

    That is an id such as ``"torch/CartPole-v1"``; a class or function with a parameter ``num_envs``
    that has no default; or a `TensorWorld`.
    """
    if isinstance(env, str):
        return env in WORLDS
    return _makes_worlds(env) or is_built(env)


def is_built(env: Any) -> bool:
    """Whether this is a tensor world, and not what makes one."""
    return not isinstance(env, (str, type)) and isinstance(env, TensorWorld)


def check_can_share(env: Any) -> None:
    """Refuse worlds of which shares cannot be made: whoever makes one has to be told which.

    Raises:
        ConfigError: If it is built already, or is made without ``first_env``.
    """
    if is_built(env):
        raise ConfigError(
            f"{env.name} is built already, and cannot be shared by several processes: give the "
            "function that builds it."
        )
    if not isinstance(env, str) and not _takes(env, "first_env"):
        raise ConfigError(
            f"{_name_of(env)} has no parameter first_env, so that several processes would all play "
            "the same episodes: give it one, and hand it on to the world."
        )


def make_tensor_world(
    env: Any,
    num_envs: int | None,
    *,
    device: torch.device | str = "cpu",
    first_env: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> TensorWorld:
    """Make a tensor world.

    Args:
        env: An id such as ``"torch/CartPole-v1"``, or what makes a world: a class or function that
            takes ``num_envs`` and, if it has such parameters, ``device`` and ``first_env``. Or a
            world, which is returned as it is.
        num_envs: How many environments.
        device: Where they are simulated.
        first_env: Index of the first among all environments of the run.
        env_kwargs: Further arguments of what makes it.

    Raises:
        ConfigError: If it cannot be made, or has another number of environments.
    """
    kwargs = dict(env_kwargs or {})
    if is_built(env):
        if kwargs or num_envs not in (None, env.num_envs):
            raise ConfigError(
                f"{env.name} is built already, with {env.num_envs} environments: give num_envs="
                f"{env.num_envs} and no env_kwargs, or the function that builds it."
            )
        world: TensorWorld = env
        return world
    if num_envs is None:
        raise ConfigError("num_envs is missing: say how many environments to step.")
    make: Callable[..., Any] = _class_of(env) if isinstance(env, str) else env
    name = _name_of(env)
    if taken := sorted({"num_envs", "device", "first_env"} & kwargs.keys()):
        raise ConfigError(f"env_kwargs: {', '.join(taken)} cannot be given; hooktrainer sets it.")
    given = {"num_envs": num_envs, "device": torch.device(device), "first_env": first_env}
    own = {key: value for key, value in given.items() if _takes(make, key)}
    try:
        made = make(**own, **kwargs)
    except TypeError as error:
        if not kwargs:
            raise
        raise ConfigError(f"{name} cannot be made with env_kwargs={kwargs}: {error}") from error
    if not isinstance(made, TensorWorld):
        raise ConfigError(
            f"{name} made a {type(made).__name__}, which is no tensor world: it lacks "
            f"{', '.join(_lacking(made))}."
        )
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


def _name_of(env: Any) -> str:
    return env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__name__)


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


def _lacking(made: Any) -> list[str]:
    wanted = [*TensorWorld.__annotations__, "seed", "reset", "step", "state_dict"]
    return [name for name in [*wanted, "load_state_dict", "close"] if not hasattr(made, name)]
