"""From what the user names as environments to a group that steps them."""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import SyncVectorEnv

from ..base.env_packages import import_registering, package_of, register_known
from ..base.space_parts import MASK
from ..base.words import did_you_mean
from ..errors import ConfigError, MissingPackageError
from .group import EnvFactory, EnvGroup, GroupOptions, begun
from .scalar_group import ScalarGroup
from .spaces import plain_mask
from .vector_group import EnvPoolEnv, SeededCartPole, VectorGroup, is_envpool
from .worlds.world_ids import is_built, is_world, make_tensor_world, world_name

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
Source = EnvSpec | VectorEnv | EnvFactory | Sequence[EnvFactory]
Envs = str | Source
VectorizationMode = Literal["sync", "vector_entry_point"]
_CARTPOLE = gym.spec("CartPole-v1").vector_entry_point


def make_group(
    env: Envs,
    num_envs: int | None,
    options: GroupOptions,
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization_mode: VectorizationMode | None = None,
) -> EnvGroup:
    """Build the environments, as `VectorCollector` takes them, and the group that steps them.

    With an id and no mode several environments are stepped by their own vector entry point, if
    their episodes can be seeded one by one.
    """
    source, count = source_of(env, num_envs)
    if isinstance(source, EnvSpec):
        return _from_spec(source, count, options, dict(env_kwargs or {}), vectorization_mode)
    for name, value in (("env_kwargs", env_kwargs), ("vectorization_mode", vectorization_mode)):
        if value:
            raise ConfigError(f"{name}={value!r} goes with an environment id, not with {env!r}.")
    if type(source) is SyncVectorEnv:
        return ScalarGroup(source.envs, options)
    if isinstance(source, gym.vector.VectorEnv):
        if type(source) is CartPoleVectorEnv:
            built, source = source, SeededCartPole(count)
            vars(source).update(vars(built))  # with what was set since it was built
        return VectorGroup(source, options)
    factories = [source] * count if callable(source) else source
    return ScalarGroup([make_one(factory) for factory in factories], options)


def source_of(env: Envs, num_envs: int | None) -> tuple[Source, int]:
    """The source of the environments, and their number.

    Raises:
        ConfigError: If `VectorCollector` cannot step them; it names what can.
    """
    source: Any = find_spec(env) if isinstance(env, str) else env
    is_spec = isinstance(source, EnvSpec)
    if not is_spec and is_envpool(source):
        source = EnvPoolEnv(source)
    if isinstance(source, gym.vector.VectorEnv):
        count = source.num_envs
    elif not is_spec and is_world(source):
        raise ConfigError(f"env={world_name(env)} steps tensors: give it to WorldCollector.")
    elif is_spec or callable(source):
        if num_envs is None or num_envs < 1:
            what = source.id if is_spec else repr(env)
            raise ConfigError(f"num_envs={num_envs}: give the number of environments of {what}.")
        return source, num_envs
    else:
        count = len(_made_of(source))
    if num_envs not in (None, count):
        raise ConfigError(f"num_envs={num_envs}, but env holds {count}: leave num_envs out.")
    return source, count


def make_one(env: Envs, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make one environment of an id, a specification, a factory or a list of factories."""
    source: Any = find_spec(env) if isinstance(env, str) else env
    make: Any = source if callable(source) else None
    if isinstance(source, EnvSpec):
        make = partial(gym.make, source, **(env_kwargs or {}))
    with explain_env_errors(source, env_kwargs):
        made: Any = (make or _made_of(source)[0])()
    if not isinstance(made, gym.Env):
        raise _no_env("env builds", made)
    return made


def _made_of(source: Any) -> Sequence[Any]:
    """A list of factories, or the refusal of what is none."""
    if not isinstance(source, Sequence):
        if not isinstance(source, gym.Env):
            raise _no_env(f"env={source!r:.80} is", source)
        raise ConfigError(
            f"env={source!r:.200} is built already: give its id, or a function that builds it, "
            "such as lambda: gymnasium.make('CartPole-v1')."
        )
    if not source:
        raise ConfigError("env is an empty list: give at least one factory.")
    return source


def find_spec(env_id: str) -> EnvSpec:
    """The specification registered as ``env_id``, which may begin with ``module:``.

    A package that is known for such ids is imported.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        import_registering(module)
    register_known(name)
    if name in gym.registry:
        return gym.registry[name]
    if (package := package_of(name)) is not None and package.module != module:
        raise MissingPackageError(f"There is no environment {name!r} here. {package.advice(name)}")
    raise ConfigError(
        f"There is no environment {name!r}.{did_you_mean(name, gym.registry, most=5)} Import the "
        "package that registers it first, or write 'package:id'."
    )


def _from_spec(
    spec: EnvSpec,
    num_envs: int,
    options: GroupOptions,
    kwargs: dict[str, Any],
    mode: VectorizationMode | None,
) -> EnvGroup:
    has_vector = spec.vector_entry_point is not None
    if mode == "vector_entry_point" and not has_vector:
        raise ConfigError(f"{spec.id} has no vector entry point: leave vectorization_mode out.")
    is_seeded = spec.vector_entry_point == _CARTPOLE and options.frame_skip == 1
    is_asked = mode == "vector_entry_point" or (mode is None and spec.entry_point is None)
    plain: Any = copy.deepcopy(spec)
    if has_vector and (is_asked or (mode is None and is_seeded and num_envs > 1)):
        plain.kwargs = {**spec.kwargs, **kwargs}
        plain.kwargs.pop("num_envs", None)  # in the specification of a built one
        if is_seeded:
            plain.vector_entry_point = SeededCartPole
        with explain_env_errors(spec, kwargs):
            env = gym.make_vec(plain, num_envs, vectorization_mode="vector_entry_point")
        return VectorGroup(env, options)
    # These wrappers check at every step what the collector guarantees, or checks once.
    plain.order_enforce = False
    plain.disable_env_checker = True
    return ScalarGroup([make_one(plain, kwargs) for _ in range(num_envs)], options)


class EnvSpaces(NamedTuple):
    """The spaces of an environment."""

    observation: spaces.Space[Any]
    action: spaces.Space[Any]
    mask_size: int


def spaces_of(env: Envs, env_kwargs: Mapping[str, Any] | None = None) -> EnvSpaces:
    """The spaces of one environment; it is built and closed, unless it is built already.

    Raises:
        ConfigError: If there is no such environment; it lists the nearest ids.
        MissingPackageError: If a package it needs is not installed; has the command to install it.
    """
    made: Any
    mask = None
    if not isinstance(env, str) and is_world(env):  # an id stands for Gymnasium's own as well
        made = make_tensor_world(env, None if is_built(env) else 1, env_kwargs=env_kwargs)
        space, action_space = made.observation_space, made.action_space
        if not is_built(env):
            made.close()
    elif isinstance(env, gym.vector.VectorEnv):
        space, action_space = env.single_observation_space, env.single_action_space
    else:
        made = make_one(env, env_kwargs)
        try:
            space, action_space = made.observation_space, made.action_space
            mask = begun(made, 0)[1].get(MASK)
        finally:
            made.close()
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        return EnvSpaces(space, action_space, math.prod(space.spaces[MASK].shape or ()))
    return EnvSpaces(space, action_space, 0 if mask is None else int(plain_mask(mask).size))


def is_several(env: Any) -> bool:
    """Whether ``env`` names a multi-agent environment."""
    if isinstance(env, str):
        return env.startswith(("vmas/", "pettingzoo/"))
    return is_scenario(env)


def is_scenario(env: Any) -> bool:
    """Whether ``env`` is a VMAS scenario class. Does not import VMAS."""
    module = sys.modules.get("vmas.simulator.scenario")
    return module is not None and isinstance(env, type) and issubclass(env, module.BaseScenario)


# -- Environments that cannot be made: what is missing, or which argument is wrong, in a line.


@contextmanager
def explain_env_errors(
    source: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn what goes wrong where an environment is made into what its user can do."""
    try:
        yield
    except (DependencyNotInstalled, ImportError) as error:
        package = package_of(source.id) if isinstance(source, EnvSpec) else None
        ours = re.search(r"gymnasium\[(box2d|mujoco)\]", str(error))
        install = package.install if package else f"hooktrainer[{ours[1]}]" if ours else ""
        advice = f": pip install '{install}'" if install else ""
        name = getattr(error, "name", None)
        raise MissingPackageError(
            f"the environment cannot be made: {error}{advice}", name=name
        ) from error
    except TypeError as error:
        if not kwargs:
            raise
        raise ConfigError(f"env_kwargs={dict(kwargs)}: {error}") from error


def _no_env(who: str, made: Any) -> ConfigError:
    """The error of what is no environment of Gymnasium, with what takes it instead."""
    return ConfigError(
        f"{who} a {type(made).__name__}, not a gymnasium.Env. VectorCollector takes an id, a "
        "function that builds one environment, or a vector environment that is built already; "
        "WorldCollector takes simulators of tensors; AgentsCollector, mappo, ippo, vdn and qmix "
        "take PettingZoo's parallel environments."
    )
