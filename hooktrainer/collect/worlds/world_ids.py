"""Makes tensor environments from an id, a factory or an object of a supported kind."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from ...base.checks import named
from ...base.untrusted import one_line
from ...errors import ConfigError
from .adapters.foreign_world import find, name_of
from .tensor_world import TensorWorld

PREFIX: Final = "torch/"
"""The prefix of the ids."""

_CLASSIC = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
)
_MINATAR = ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders")
_SIZES = (5, 6, 8, 16)
_MINIGRID: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    **{f"Empty-{n}x{n}": ("Empty", {"size": n}) for n in _SIZES},
    **{f"Empty-Random-{n}x{n}": ("Empty", {"size": n, "agent_start_pos": None}) for n in (5, 6)},
    **{f"DoorKey-{n}x{n}": ("DoorKey", {"size": n}) for n in _SIZES},
    "Unlock": ("Unlock", {}),
    **{
        f"KeyCorridorS{size}R{rows}": ("KeyCorridor", {"room_size": size, "num_rows": rows})
        for size, rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
    },
    **{f"MemoryS{n}": ("Memory", {"size": n}) for n in (7, 9, 11, 13)},
    **{f"MemoryS{n}Random": ("Memory", {"size": n, "random_length": True}) for n in (13, 17)},
    "FourRooms": ("FourRooms", {}),
    **{f"RedBlueDoors-{n}x{n}": ("RedBlueDoor", {"size": n}) for n in (6, 8)},
}
"""By name, the class without its suffix, and its arguments, the same as in the original."""

WORLDS: Final = {
    **{f"torch/{name}": f"classic_control:{name.partition('-')[0]}World" for name in _CLASSIC},
    **{f"torch/MinAtar-{name}": f"minatar:{name}World" for name in _MINATAR},
    **{
        f"torch/MiniGrid-{name}-v0": f"minigrid:{kind}World"
        for name, (kind, _) in _MINIGRID.items()
    },
}
"""By id, the module and the class."""

Kind: TypeAlias = Literal["world", "torchrl", "rsl_rl", "gym", "gymnax", "brax"]
_MARKS: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    ("rsl_rl", ("num_envs", "num_actions", "device", "get_observations", "step")),
    ("gym", ("num_envs", "single_observation_space", "single_action_space", "device")),
    ("gymnax", ("step_env", "reset_env", "default_params")),
    ("brax", ("action_size", "reset", "step")),
)
"""Attributes of each kind; the first kind with all of them is chosen."""
_FUNCTIONAL: Final = ("gymnax", "brax")
"""Kinds that are one environment as pure functions, which can be vectorized."""


def original_id(world: str) -> str:
    """The id of Gymnasium's environment that a world equals; other ids unchanged.

    Examples:
        >>> original_id("torch/CartPole-v1")
        'CartPole-v1'
        >>> original_id("torch/MinAtar-Breakout")
        'MinAtar/Breakout-v1'
    """
    name = world.removeprefix(PREFIX)
    game = name.removeprefix("MinAtar-")
    return name if game == name or world == name else f"MinAtar/{game}-v1"


def register() -> None:
    """Register the ids with Gymnasium as aliases of the original environments."""
    for world in WORLDS:
        if world not in gym.registry:
            gym.register(world, **_alias(original_id(world)))


def _alias(original: str) -> dict[str, Any]:
    """The arguments that register an environment with its usual wrappers; its package may miss."""
    if original.startswith("MinAtar/"):
        game = re.sub(r"(?<!^)(?=[A-Z])", "_", original[8:-3]).lower()
        return {
            "entry_point": "minatar.gym:BaseEnv",
            "kwargs": {"game": game, "use_minimal_action_set": True},
            "additional_wrappers": (wrapper("FirstAction"),),
        }
    if original.startswith("MiniGrid-"):
        kind, kwargs = _MINIGRID[original[9:-3]]
        return {
            "entry_point": f"minigrid.envs:{kind}Env",
            "kwargs": dict(kwargs),
            "additional_wrappers": minigrid_wrappers(mission_varies=kind == "KeyCorridor"),
        }
    spec = gym.spec(original)
    names = ("entry_point", "vector_entry_point", "reward_threshold", "max_episode_steps")
    return {name: getattr(spec, name) for name in names}


def wrapper(name: str, module: str = "hooktrainer.collect.families", **kwargs: Any) -> WrapperSpec:
    """A wrapper by its class and module, with its arguments."""
    return WrapperSpec(name, f"{module}:{name}", kwargs)


def minigrid_wrappers(mission_varies: bool) -> tuple[WrapperSpec, WrapperSpec]:
    """MiniGrid's usual ones: image and direction, and the mission as word indices if it varies."""
    place = "gymnasium.wrappers.transform_observation"
    parts = wrapper("FilterObservation", place, filter_keys=["image", "direction"])
    if mission_varies:
        parts = wrapper("DictObservationSpaceWrapper", "minigrid.wrappers")
    return parts, wrapper("CategoricalImage")


def kind_of(env: Any) -> Kind | None:
    """The kind of an environment object; ``None`` if unsupported. No package is imported.

    Supported are TorchRL's ``EnvBase``, rsl_rl's ``VecEnv``, Gymnasium-like environments with
    ``num_envs`` and ``device``, gymnax environments or the pair from ``gymnax.make``, environments
    of Brax or MuJoCo Playground, and `TensorWorld`.
    """
    if env is None or isinstance(env, (str, type, EnvSpec)):
        return None
    if isinstance(env, tuple):
        return "gymnax" if len(env) == 2 and kind_of(env[0]) == "gymnax" else None
    torchrl = sys.modules.get("torchrl.envs.common")
    if torchrl is not None and isinstance(env, torchrl.EnvBase):
        return "torchrl"
    if isinstance(env, TensorWorld):
        return "world"
    for kind, marks in _MARKS:
        if all(find(env, name) is not None for name in marks):
            return kind
    return None


def is_world(env: Any) -> bool:
    """Whether ``env`` names, makes or is a tensor environment.

    That is an id such as ``"torch/CartPole-v1"``; a class or function with a parameter ``num_envs``
    without default; a `TensorWorld`; or an object that `adapt_world` accepts.
    """
    if isinstance(env, str):
        return env in WORLDS
    if kind_of(env) is not None:
        return True
    number = _parameters(env).get("num_envs")
    if number is None:  # a class that passes its arguments on
        return TensorWorld in getattr(env, "__mro__", ()) and _takes(env, "num_envs")
    return number.default is number.empty


def is_built(env: Any) -> bool:
    """Whether ``env`` is a batch of environments rather than a factory."""
    return kind_of(env) not in (None, *_FUNCTIONAL)


def world_name(env: Any) -> str:
    """The name of an environment that `is_world` accepts."""
    kind = kind_of(env)
    if isinstance(env, str):
        return env
    if kind in (None, "torchrl"):
        return str(getattr(env, "__qualname__", type(env).__name__))
    one = env[0] if isinstance(env, tuple) else env
    return str(one.name) if kind in ("world", "gymnax") else name_of(env)


def makes_shares(env: Any) -> bool:
    """Whether several processes can each make a share of the environments of ``env``."""
    if isinstance(env, str) or kind_of(env) in _FUNCTIONAL:
        return True
    return not is_built(env) and _takes(env, "first_env")


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
    make: Callable[..., Any] = env
    if isinstance(env, str):
        module, name = named("env", env, WORLDS).split(":")
        make = getattr(import_module(f"{__package__}.{module}"), name)
        grid = _MINIGRID.get(env.removeprefix("torch/MiniGrid-").removesuffix("-v0"))
        kwargs = {"name": env, **grid[1], **kwargs} if grid else kwargs
    elif kind_of(env) in _FUNCTIONAL:
        make = partial(adapt_world, env)
    name = world_name(env)
    given: dict[str, Any] = {
        "num_envs": num_envs,
        "device": torch.device(device),
        "first_env": first_env,
    }
    with refused_in_one_line(f"{name} cannot be made with env_kwargs={kwargs}" if kwargs else ""):
        made = make(**{key: value for key, value in given.items() if _takes(make, key)}, **kwargs)
    made = adapt_world(made, **given)
    if made.num_envs != num_envs:
        raise ConfigError(
            f"{name} made a world of {made.num_envs} environments instead of {num_envs}."
        )
    return made


def adapt_world(
    env: Any,
    *,
    num_envs: int | None = None,
    device: torch.device | str = "cpu",
    first_env: int = 0,
    **options: Any,
) -> TensorWorld:
    """Make a tensor environment of an object; a `TensorWorld` is returned unchanged.

    ``env`` is of a kind that `kind_of` lists. ``num_envs``, ``device`` and ``first_env`` are for
    those that are pure functions, ``options`` further arguments of the adapter.

    Raises:
        ConfigError: If the object is unsupported, or an attribute is missing.
        MissingPackageError: If it needs JAX, which is not installed.

    Examples:
        >>> world = make_tensor_world("torch/CartPole-v1", 2)
        >>> adapt_world(world) is world
        True
    """
    kind = kind_of(env)
    if kind == "world":
        world: TensorWorld = env
        return world
    if kind in ("torchrl", "rsl_rl", "gym"):
        from .adapters.gym_world import GymWorld
        from .adapters.rsl_rl_world import RslRlWorld
        from .adapters.torchrl_world import TorchRLWorld

        adapters = {"torchrl": TorchRLWorld, "rsl_rl": RslRlWorld, "gym": GymWorld}
        return adapters[kind](env, **options)
    if kind is None:
        raise ConfigError(
            f"{type(env).__name__} is no tensor world: give a TensorWorld, a batched EnvBase of "
            "TorchRL, a VecEnv of rsl_rl, a vector environment that returns tensors, or an "
            "environment of gymnax, Brax or Playground."
        )
    from .adapters.jax_world import BraxEnv, GymnaxEnv, JaxWorld

    parts = env if isinstance(env, tuple) else (env,)
    one: Any = (GymnaxEnv if kind == "gymnax" else BraxEnv)(*parts, **options)
    return JaxWorld(one, num_envs or 0, device, first_env=first_env)


def _parameters(make: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of something that can be called; none of anything else."""
    if not callable(make):  # else its repr is computed, which may fail
        return {}
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {}


def _takes(make: Callable[..., Any], name: str) -> bool:
    known = _parameters(make)
    return name in known or any(one.kind is one.VAR_KEYWORD for one in known.values())


@contextmanager
def refused_in_one_line(given: str) -> Iterator[None]:
    """Raise `ConfigError` if an environment cannot be made in the block with what was given.

    Where nothing was given, ``""``, errors are those of the environment and remain.
    """
    try:
        yield
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        if not given or isinstance(error, ConfigError):
            raise
        why = one_line(f"{type(error).__name__}: {error}", 1_000)
        raise ConfigError(f"{given}: {why}") from error
