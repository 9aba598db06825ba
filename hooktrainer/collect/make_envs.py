"""Builds the environments that a user names, and steps them as one."""

from __future__ import annotations

import copy
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import SyncVectorEnv

from ..base.checks import check_count
from ..base.env_packages import import_registering, package_of, register_known
from ..base.space_parts import MASK
from ..base.words import did_you_mean
from ..errors import ConfigError, MissingPackageError
from .agents.parallel_env import ParallelEnv, ParallelEnvs, pettingzoo_factory
from .agents.vmas import VmasWorld
from .batched_env import ArrayEnv, BatchedEnv, EnvFactory, EnvOptions, EpisodeSeeds, reset_env
from .scalar_envs import ScalarEnvs
from .spaces import plain_mask
from .tensor_envs import TensorEnvs
from .vector_envs import EnvPoolEnv, SeededCartPole, VectorEnv, VectorEnvs, is_envpool
from .worker_envs import NO_WORKERS, WorkerEnvs, Workers
from .worlds.tensor_world import TensorWorld
from .worlds.world_env import WorldEnv
from .worlds.world_ids import (
    is_built,
    is_world,
    make_tensor_world,
    makes_shares,
    refused_in_one_line,
    world_name,
)

Source = EnvSpec | VectorEnv | EnvFactory | Sequence[EnvFactory]
Envs = str | Source
_PETTINGZOO, _VMAS = "pettingzoo/", "vmas/"
VectorizationMode = Literal["sync", "vector_entry_point"]
_CARTPOLE = gym.spec("CartPole-v1").vector_entry_point


def make_envs(
    env: Any,
    num_envs: int | None,
    options: EnvOptions,
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization_mode: VectorizationMode | None = None,
    workers: Workers = NO_WORKERS,
) -> BatchedEnv:
    """Build environments of any kind, as `VectorCollector` takes them.

    With an id and no mode several environments are stepped by their own vector entry point, if
    their episodes can be seeded one by one.

    Raises:
        ConfigError: If there is no such environment, or an option does not go with it.
        MissingPackageError: If a package it needs is not installed.
    """
    if workers.number:
        source, count = envs_to_share(env, num_envs, workers)
        make = partial(_array_env, env_kwargs=env_kwargs, vectorization_mode=vectorization_mode)
        named = isinstance(env, str) and is_several(env)
        return WorkerEnvs(make, env if named else source, count, options, workers)
    if not is_tensors(env):
        return _array_env(env, num_envs, options, env_kwargs, vectorization_mode)
    _refuse_options(world_name(env), {}, vectorization_mode)
    if _is_vmas(env):
        scenario = env.removeprefix(_VMAS) if isinstance(env, str) else env
        rest = (options.device, options.groups, env_kwargs, options.info_keys)
        world: TensorWorld = VmasWorld(scenario, _number(env, num_envs), *rest)
    else:
        first_env = options.seeds.first_env
        world = make_tensor_world(
            env, num_envs, device=options.device, first_env=first_env, env_kwargs=env_kwargs
        )
    return TensorEnvs(world, options)


def is_tensors(env: Any) -> bool:
    """Whether environments are tensors, which are stepped as one batch."""
    return _is_vmas(env) or is_world(env)


def _is_vmas(env: Any) -> bool:
    return env.startswith(_VMAS) if isinstance(env, str) else is_scenario(env)


def check_shares(env: Any, share: int, number: int, workers: Workers, apart: bool) -> None:
    """Refuse environments that ``number`` processes cannot share, each with ``share`` of them.

    ``apart``: whether the environments are independent of each other.
    """
    if not is_tensors(env):
        envs_to_share(env, share, workers)
    elif not apart or not makes_shares(env):
        raise ConfigError(
            f"{number} processes cannot share the environments of {world_name(env)}: they are "
            "built already or without first_env, or depend on each other or on one stream of "
            "random numbers. Give a function of num_envs and first_env, or use one process."
        )


def envs_to_share(env: Any, num_envs: int | None, workers: Workers) -> tuple[Source, int]:
    """The source of environments that step in processes, and their number."""
    number, stages, _ = workers
    if is_tensors(env):
        raise ConfigError(
            f"workers={number}, stages={stages}: {world_name(env)} is one batch of tensors, which "
            "no processes share; leave these out."
        )
    source, count = source_of(env, num_envs)
    if isinstance(source, gym.vector.VectorEnv):
        raise ConfigError(
            "A vector environment that was made already cannot be shared by several processes: "
            "give an environment id or a factory, or leave out workers."
        )
    if count < number * stages:
        raise ConfigError(
            f"num_envs={count} with workers={number} and stages={stages}: each process needs "
            f"an environment for each stage, so at least {number * stages}."
        )
    return source, count


def _array_env(
    env: Envs,
    num_envs: int | None,
    options: EnvOptions,
    env_kwargs: Mapping[str, Any] | None,
    vectorization_mode: VectorizationMode | None,
) -> ArrayEnv:
    source, count = source_of(env, num_envs)
    kwargs = dict(env_kwargs or {})
    if isinstance(source, EnvSpec):
        return _from_spec(source, count, options, kwargs, vectorization_mode)
    _refuse_options(source, kwargs, vectorization_mode)
    if type(source) is SyncVectorEnv:
        return ScalarEnvs(source.envs, options)
    if isinstance(source, gym.vector.VectorEnv):
        if type(source) is CartPoleVectorEnv:
            built, source = source, SeededCartPole(count)
            vars(source).update(vars(built))  # with the attributes set since it was built
        return VectorEnvs(source, options)
    factories = [_with_arguments(source, kwargs)] * count if callable(source) else source
    with explain_env_errors(source, kwargs):
        made: list[Any] = [factory() for factory in factories]
    if hasattr(made[0], "possible_agents") or options.groups:
        function: Any = factories[0]
        function = getattr(function, "func", function)  # of a functools.partial
        name = getattr(function, "__qualname__", type(function).__name__)
        name = env if isinstance(env, str) else name
        return ParallelEnvs([ParallelEnv(one, name, options) for one in made], options)
    return ScalarEnvs([_checked(one) for one in made], options)


def source_of(env: Envs, num_envs: int | None) -> tuple[Source, int]:
    """The source of the environments, and their number.

    Raises:
        ConfigError: If `VectorCollector` cannot step them; it names the class that can.
    """
    source: Any = env
    if isinstance(env, str):
        parallel = env.removeprefix(_PETTINGZOO)
        source = find_spec(env) if parallel == env else pettingzoo_factory(parallel)
    elif is_envpool(env):
        source = EnvPoolEnv(env)
    if isinstance(source, gym.vector.VectorEnv):
        count = source.num_envs
    elif isinstance(source, EnvSpec):
        return source, _number(source.id, num_envs)
    elif callable(source):
        return source, _number(env, num_envs)
    else:
        count = len(_made_of(source))
    if num_envs not in (None, count):
        raise ConfigError(f"num_envs={num_envs}, but env holds {count}: leave num_envs out.")
    return source, count


def _number(env: Any, num_envs: int | None) -> int:
    if num_envs is None:
        raise ConfigError(f"num_envs=None: give the number of environments of {env!s:.200}.")
    check_count("num_envs", num_envs)
    return num_envs


@dataclass(frozen=True)
class Wrapped:
    """Makes an environment of Gymnasium, or one of a tensor world, and wraps it.

    Attributes:
        wrapper: A wrapper class or a function, of a module that others can import.
        env: A specification or a factory.
        env_kwargs: Keyword arguments of the environment.
    """

    wrapper: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]
    env: Any
    env_kwargs: Mapping[str, Any] | None = None

    def __call__(self) -> gym.Env[Any, Any]:
        if isinstance(self.env, EnvSpec):
            kwargs = self.env_kwargs or {}
            return self.wrapper(gym.make(self.env, disable_env_checker=True, **kwargs))
        return self.wrapper(make_one(self.env, self.env_kwargs))

    def __repr__(self) -> str:
        return repr(self.env)


def make_one(env: Any, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make one environment of an id, a specification, a factory or a list of factories."""
    source: Any = find_spec(env) if isinstance(env, str) else env
    kwargs = env_kwargs or {}
    if is_world(source):
        return WorldEnv(make_tensor_world(source, 1, env_kwargs=kwargs))
    if isinstance(source, EnvSpec):
        make: Any = partial(gym.make, source, **kwargs)
    elif callable(source):
        make = _with_arguments(source, kwargs)
    else:
        make = _made_of(source)[0]
        _refuse_options(source, kwargs)
    with explain_env_errors(source, kwargs):
        made = make()
    return _checked(made)


def _with_arguments(factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> partial[Any]:
    """A factory with its arguments; raises `ConfigError` if it needs others."""
    try:
        inspect.signature(factory).bind(**kwargs)
    except TypeError as error:
        raise ConfigError(
            f"{factory!r:.200} cannot be called with env_kwargs={dict(kwargs)}: {error}."
        ) from error
    except ValueError:
        pass  # it has no signature
    return partial(factory, **kwargs)


def _refuse_options(
    env: Any, kwargs: Mapping[str, Any], mode: VectorizationMode | None = None
) -> None:
    """Refuse options that go with other sources of environments."""
    where = f"not with {env!r:.200}: leave it out."
    if mode:
        raise ConfigError(f"vectorization_mode={mode!r} goes with an id of Gymnasium's, {where}")
    if kwargs and not callable(env):
        raise ConfigError(f"env_kwargs={kwargs} goes with an id or one factory, {where}")


def _checked(made: Any) -> gym.Env[Any, Any]:
    if not isinstance(made, gym.Env):
        raise _no_env("env builds", made)
    return made


def _made_of(source: Any) -> Sequence[Any]:
    """A list of factories; raises `ConfigError` for anything else."""
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


def named_env(env: Any) -> Any:
    """The class or function that ``file.py:Name`` or ``module:Name`` names; else ``env`` itself.

    An id that the file registers gets its module as a prefix.
    """
    place, _, name = env.rpartition(":") if isinstance(env, str) else ("", "", "")
    if not place:
        return env
    module = import_registering(place)
    found = None if name in gym.registry else getattr(module, name, None)
    if callable(found):
        return found
    if found is not None:
        raise ConfigError(
            f"{env} is {found!r:.200}: name a class, or a function that makes an environment."
        )
    if name not in gym.registry and place.endswith(".py"):
        raise ConfigError(f"{env}: there is no {name!r} in it.{did_you_mean(name, vars(module))}")
    return f"{module.__name__}:{name}"


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
        "package that registers it first, or write 'package:id'. Algorithms take 'file.py:Class', "
        "too."
    )


def _from_spec(
    spec: EnvSpec,
    num_envs: int,
    options: EnvOptions,
    kwargs: dict[str, Any],
    mode: VectorizationMode | None,
) -> ArrayEnv:
    has_vector = spec.vector_entry_point is not None
    if mode == "vector_entry_point" and not has_vector:
        raise ConfigError(f"{spec.id} has no vector entry point: leave vectorization_mode out.")
    is_seeded = spec.vector_entry_point == _CARTPOLE and options.frame_skip in (None, 1)
    is_asked = mode == "vector_entry_point" or (mode is None and spec.entry_point is None)
    plain: Any = copy.deepcopy(spec)
    if has_vector and (is_asked or (mode is None and is_seeded and num_envs > 1)):
        plain.kwargs = {**spec.kwargs, **kwargs}
        plain.kwargs.pop("num_envs", None)  # in the specification of a built one
        if is_seeded:
            plain.vector_entry_point = SeededCartPole
        with explain_env_errors(spec, kwargs):
            env = gym.make_vec(plain, num_envs, vectorization_mode="vector_entry_point")
        return VectorEnvs(env, options)
    # These wrappers check at every step what the collector guarantees, or checks once.
    plain.order_enforce = False
    plain.disable_env_checker = True
    return ScalarEnvs([make_one(plain, kwargs) for _ in range(num_envs)], options)


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
        with make_one(env, env_kwargs) as made:
            for name in ("observation_space", "action_space"):
                if not isinstance(getattr(made, name, None), spaces.Space):
                    raise ConfigError(
                        f"{made} has no {name}: set self.{name} to one of gymnasium.spaces."
                    )
            space, action_space = made.observation_space, made.action_space
            mask = reset_env(made, 0)[1].get(MASK)
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        return EnvSpaces(space, action_space, math.prod(space.spaces[MASK].shape or ()))
    return EnvSpaces(space, action_space, 0 if mask is None else int(plain_mask(mask).size))


def agents_of(
    env: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> BatchedEnv:
    """Build one environment of several agents.

    Raises:
        ConfigError: If ``env`` is none; and as `make_envs`.
    """
    made = None
    if not isinstance(env, str) or is_several(env):
        made = make_envs(env, 1, EnvOptions(EpisodeSeeds(0), groups=groups), env_kwargs)
    if made is None or not made.groups:
        raise ConfigError(
            f"env={env!r:.80} is no environment of several agents: give 'vmas/balance', "
            "'pettingzoo/mpe/simple_spread_v3', a scenario class of VMAS, or a function that makes "
            "a parallel environment of PettingZoo."
        )
    return made


def is_several(env: Any) -> bool:
    """Whether ``env`` names a multi-agent environment."""
    return _is_vmas(env) or (isinstance(env, str) and env.startswith(_PETTINGZOO))


def is_scenario(env: Any) -> bool:
    """Whether ``env`` is a VMAS scenario class. Does not import VMAS."""
    module = sys.modules.get("vmas.simulator.scenario")
    return module is not None and isinstance(env, type) and issubclass(env, module.BaseScenario)


# -- Errors of making environments: the missing package or the wrong argument, in a line.


@contextmanager
def explain_env_errors(
    source: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn errors of making an environment into advice for the user."""
    wrappers = source.additional_wrappers if isinstance(source, EnvSpec) else ()
    given = [f"env_kwargs={dict(kwargs)}"] if kwargs else []
    given += [f"wrappers={[wrapper.name for wrapper in wrappers]}"] if wrappers else []
    try:
        with refused_in_one_line(", ".join(given)):
            yield
    except (DependencyNotInstalled, ImportError) as error:
        name = getattr(error, "name", None)
        package = package_of(source.id, name) if isinstance(source, EnvSpec) else None
        ours = re.search(r"gymnasium\[(box2d|mujoco)\]", str(error))
        install = package.install if package else f"hooktrainer[{ours[1]}]" if ours else ""
        advice = f": pip install '{install}'" if install else ""
        raise MissingPackageError(
            f"the environment cannot be made: {error}{advice}", name=name
        ) from error


def _no_env(who: str, made: Any) -> ConfigError:
    """The error for an object that is no Gymnasium environment; it lists what is accepted."""
    if is_world(made):
        return ConfigError(
            f"{who} a {type(made).__name__}, a batch of environments: pass it itself, or give the "
            "function that makes it a parameter num_envs without a default."
        )
    return ConfigError(
        f"{who} a {type(made).__name__}, not a gymnasium.Env. VectorCollector takes an id, a "
        "function that builds one environment, a vector environment that is built already, or a "
        "simulator of tensors; PettingZoo's parallel environments need mappo, ippo, vdn or qmix."
    )
