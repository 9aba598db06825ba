"""From what the user names as environments to a group that steps them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import SyncVectorEnv

from ..base.env_packages import import_registering, package_of, register_known
from ..base.space_parts import MASK
from ..base.words import did_you_mean
from ..errors import ConfigError, MissingPackageError
from .env_errors import EnvPoolEnv, check_made, explain_env_errors, is_envpool
from .group import EnvFactory, EnvGroup, GroupOptions
from .restore import random_episode
from .scalar_group import ScalarGroup
from .spaces import late_mask, plain_mask
from .vector_group import SeededCartPole, VectorGroup
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
    of: int | None = None,
) -> EnvGroup:
    """Build the environments, as `VectorCollector` takes them, and the group that steps them.

    With an id and no mode several environments are stepped by their own vector entry point, if
    their episodes can be seeded one by one. If these are a share, ``of`` says how many there are,
    so that one by itself is stepped as the others are.
    """
    source: Source = find_spec(env) if isinstance(env, str) else env
    if is_envpool(source):
        source = EnvPoolEnv(source)
    if isinstance(source, EnvSpec):
        count = required(num_envs, source.id)
        kwargs = dict(env_kwargs or {})
        return _from_spec(source, count, options, kwargs, vectorization_mode, of or count)
    for name, value in (("env_kwargs", env_kwargs), ("vectorization_mode", vectorization_mode)):
        if value:
            raise ConfigError(f"{name}={value!r} goes with an environment id, not with {env!r}.")
    if isinstance(source, gym.vector.VectorEnv):
        matching(num_envs, source.num_envs)
        return _from_vector_env(source, options)
    if is_world(source):
        raise ConfigError(f"env={world_name(env)} steps tensors: give it to WorldCollector.")
    if callable(source):
        return _scalar([source] * required(num_envs, repr(env)), options)
    if not isinstance(source, Sequence):
        check_made(source, f"env={env!r:.80} is")
        raise ConfigError(
            f"env={env!r:.200} is built already: give its id, or a function that builds it, such "
            "as lambda: gymnasium.make('CartPole-v1')."
        )
    matching(num_envs, len(source))
    return _scalar(source, options)


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
    of: int,
) -> EnvGroup:
    alone = of == 1 and mode is None and spec.entry_point is not None
    is_seeded = spec.vector_entry_point == _CARTPOLE and options.frame_skip == 1
    asked = mode is not None or spec.entry_point is None
    if mode != "sync" and spec.vector_entry_point is not None and not alone:
        if is_seeded or asked:
            return VectorGroup(_vectorised(spec, num_envs, kwargs, is_seeded), options)
    elif mode == "vector_entry_point":
        raise ConfigError(f"{spec.id} has no vector entry point: leave vectorization_mode out.")
    plain = copy.deepcopy(spec)
    # These wrappers check at every step what the collector guarantees, or checks once.
    plain.order_enforce = False
    plain.disable_env_checker = True

    def make_one() -> gym.Env[Any, Any]:
        with explain_env_errors(spec, kwargs):
            return gym.make(plain, **kwargs)

    return _scalar([make_one] * num_envs, options)


def _from_vector_env(env: VectorEnv, options: GroupOptions) -> EnvGroup:
    if type(env) is SyncVectorEnv:
        return ScalarGroup(env.envs, options)
    if type(env) is CartPoleVectorEnv:
        seeded = SeededCartPole(env.num_envs)
        vars(seeded).update(vars(env))  # with what was set since it was built
        return VectorGroup(seeded, options)
    return VectorGroup(env, options)


def _vectorised(spec: EnvSpec, num_envs: int, kwargs: dict[str, Any], is_seeded: bool) -> VectorEnv:
    plain: Any = copy.deepcopy(spec)
    plain.kwargs = {**spec.kwargs, **kwargs}
    plain.kwargs.pop("num_envs", None)  # in the specification of a built one
    if is_seeded:
        plain.vector_entry_point = SeededCartPole
    with explain_env_errors(spec, kwargs):
        return gym.make_vec(plain, num_envs=num_envs, vectorization_mode="vector_entry_point")


def _scalar(factories: Sequence[EnvFactory], options: GroupOptions) -> EnvGroup:
    if not factories:
        raise ConfigError("env is an empty list: give at least one factory.")
    envs: list[gym.Env[Any, Any]] = []
    try:
        for i, factory in enumerate(factories):
            if not callable(factory):
                raise ConfigError(
                    f"env[{i}] is {factory!r}: give functions that build an environment, for "
                    "instance lambda: gymnasium.make('CartPole-v1')."
                )
            with explain_env_errors():
                made = factory()
            check_made(made, f"Factory {i} built")
            envs.append(made)
        return ScalarGroup(envs, options)
    except BaseException:
        for made in envs:
            made.close()
        raise


def required(num_envs: int | None, what: str) -> int:
    """The number of environments of an id or a factory."""
    if num_envs is None or num_envs < 1:
        raise ConfigError(f"num_envs={num_envs}: say how many environments of {what} to step.")
    return num_envs


def matching(num_envs: int | None, count: int) -> int:
    """The number of environments of what holds ``count``."""
    if num_envs not in (None, count):
        raise ConfigError(f"num_envs={num_envs}, but env holds {count}: leave num_envs out.")
    return count


Space = spaces.Space[Any]


class EnvSpaces(NamedTuple):
    """What an environment takes and gives."""

    observation: Space
    action: Space
    mask_size: int


def spaces_of(env: Envs, env_kwargs: Mapping[str, Any] | None = None) -> EnvSpaces:
    """The spaces of one environment.

    Args:
        env: As for `VectorCollector`, or for `WorldCollector`. One environment is built and
            closed, unless it is a vector environment, or a tensor world, already.
        env_kwargs: Keyword arguments of the environment, with an id.

    Raises:
        ConfigError: If there is no such environment; it lists the nearest ids. If an action mask
            comes with the first step and not with the reset.
        MissingPackageError: If a package it needs is not installed; it says what to type.
    """
    if isinstance(env, gym.vector.VectorEnv) and not is_world(env):
        spaces_ = (env.single_observation_space, env.single_action_space)
        return EnvSpaces(*spaces_, _mask_in_observation(spaces_[0]))
    if is_world(env) and not isinstance(env, str):  # an id stands for Gymnasium's own as well
        return _spaces_of_world(env, env_kwargs)
    source: Any = find_spec(env) if isinstance(env, str) else env
    with explain_env_errors(source, env_kwargs):
        if isinstance(source, EnvSpec):
            made = gym.make(source, **(env_kwargs or {}))
        elif isinstance(source, Sequence) and source:
            made = source[0]()
        elif callable(source):
            made = source()
        else:
            check_made(source, f"env={env!r:.80} is")
            raise ConfigError(
                f"env={env!r}: give an environment id, a factory, or a list of factories."
            )
    check_made(made, "env builds")
    try:
        found = (made.observation_space, made.action_space)
        size = _mask_in_observation(found[0])
        if not size:
            size = _mask_in_info(made)
        return EnvSpaces(*found, size)
    finally:
        made.close()


def _spaces_of_world(env: Any, env_kwargs: Mapping[str, Any] | None) -> EnvSpaces:
    built = is_built(env)
    world = make_tensor_world(env, None if built else 1, env_kwargs=env_kwargs)
    found = (world.observation_space, world.action_space)
    if not built:
        world.close()
    return EnvSpaces(*found, _mask_in_observation(found[0]))


def _mask_in_observation(space: Space) -> int:
    found = space.spaces.get(MASK) if isinstance(space, spaces.Dict) else None
    return 0 if found is None else math.prod(found.shape or ())


def _mask_in_info(env: gym.Env[Any, Any]) -> int:
    """Size of the mask that ``reset`` gives in its info, of which ``step`` may not give more."""
    for action, outcome in random_episode(env, seed=0, steps=1):
        mask = outcome[-1].get(MASK)
        if action is None and mask is not None:
            return int(plain_mask(mask).size)
        if mask is not None:
            raise ConfigError(late_mask())
    return 0
