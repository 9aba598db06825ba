"""`adapt_world`: makes a tensor environment of any supported object."""

from __future__ import annotations

import sys
from typing import Any, Final, Literal, TypeAlias

import torch

from ....errors import ConfigError
from ..tensor_world import AnyWorld, TensorWorld
from .foreign_world import find

Kind: TypeAlias = Literal["world", "torchrl", "rsl_rl", "gym", "gymnax", "brax"]

_MARKS: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    ("rsl_rl", ("num_envs", "num_actions", "device", "get_observations", "step")),
    ("gym", ("num_envs", "single_observation_space", "single_action_space", "device")),
    ("gymnax", ("step_env", "reset_env", "default_params")),
    ("brax", ("action_size", "reset", "step")),
)
"""Attributes of each kind; the first kind with all of them is chosen."""


def kind_of(env: Any) -> Kind | None:
    """The kind of an environment object; ``None`` if unsupported. No package is imported.

    Supported are TorchRL's ``EnvBase``, rsl_rl's ``VecEnv``, Gymnasium-like environments with
    ``num_envs`` and ``device``, gymnax environments or the pair from ``gymnax.make``, environments
    of Brax or MuJoCo Playground, and `TensorWorld`.
    """
    if env is None or isinstance(env, (str, type)):
        return None
    if isinstance(env, tuple):
        return "gymnax" if len(env) == 2 and kind_of(env[0]) == "gymnax" else None
    torchrl = sys.modules.get("torchrl.envs.common")
    if torchrl is not None and isinstance(env, torchrl.EnvBase):
        return "torchrl"
    if isinstance(env, TensorWorld):
        return "world"
    return next((kind for kind, marks in _MARKS if not _lacks(env, marks)), None)


def is_functional(env: Any) -> bool:
    """Whether it is one environment as pure functions, which can be vectorized."""
    return kind_of(env) in ("gymnax", "brax")


def adapt_world(
    env: Any,
    *,
    num_envs: int | None = None,
    device: torch.device | str = "cpu",
    first_env: int = 0,
    **options: Any,
) -> TensorWorld:
    """Make a tensor environment of an object; a `TensorWorld` is returned unchanged.

    Args:
        env: See `kind_of`.
        num_envs: Number of environments, for those that are pure functions.
        device: Device of these; others keep their own.
        first_env: Index of the first environment in the run.
        **options: Further arguments of `GymWorld`, `RslRlWorld`, `GymnaxEnv` or `BraxEnv`.

    Raises:
        ConfigError: If the object is unsupported, or an attribute is missing.
        MissingPackageError: If it needs JAX, which is not installed.

    Examples:
        >>> from hooktrainer.collect.worlds import make_tensor_world
        >>> world = make_tensor_world("torch/CartPole-v1", 2)
        >>> adapt_world(world) is world
        True
    """
    kind = kind_of(env)
    if kind == "world":
        world: TensorWorld = env
        return world
    if kind in ("torchrl", "rsl_rl", "gym"):
        from . import GymWorld, RslRlWorld, TorchRLWorld

        adapters = {"torchrl": TorchRLWorld, "rsl_rl": RslRlWorld, "gym": GymWorld}
        return adapters[kind](env, **options)
    if kind is None:
        raise ConfigError(
            f"{type(env).__name__} is no tensor world: a TensorWorld would have "
            f"{', '.join(_lacks(env, world_members()))} too. Else give a batched EnvBase of "
            "TorchRL, a VecEnv of rsl_rl, a vector environment that returns tensors, or an "
            "environment of gymnax, Brax or Playground."
        )
    if num_envs is None:
        raise ConfigError("num_envs is missing: pass the number of environments.")
    from .jax_world import BraxEnv, GymnaxEnv, JaxEnv, JaxWorld

    parts = env if isinstance(env, tuple) else (env,)
    one: JaxEnv = (GymnaxEnv if kind == "gymnax" else BraxEnv)(*parts, **options)
    return JaxWorld(one, num_envs, device, first_env=first_env)


def world_members() -> tuple[str, ...]:
    """The names of all members of a `TensorWorld`."""
    calls = ("seed", "reset", "step", "state_dict", "load_state_dict", "close")
    return (*AnyWorld.__annotations__, *TensorWorld.__annotations__, *calls)


def _lacks(env: Any, wanted: tuple[str, ...]) -> list[str]:
    return [name for name in wanted if not _has(env, name)]


def _has(env: Any, name: str) -> bool:
    try:
        return find(env, name) is not None
    except Exception:  # a wrapper that forwards what is not there, in its own way
        return False
