"""Environments that cannot be made: what is missing, or which argument is wrong, in a line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled

from ..base.env_packages import package_of
from ..base.words import did_you_mean, listed
from ..errors import ConfigError, MissingPackageError
from ..loop.signals import SignalExit
from .envpool import is_envpool
from .worlds.adapters.kinds import kind_of

_OURS = ("box2d", "mujoco")
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@contextmanager
def explain_env_errors(
    source: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn what goes wrong where an environment is made into what its user can do.

    Args:
        source: What it is made of. An `EnvSpec` is made by Gymnasium, so that what cannot be
            imported is a package, not a module of the user's.
        kwargs: Keyword arguments of the environment.

    Raises:
        MissingPackageError: If a package is missing; it names the extra of ours, if there is one.
        ConfigError: If the environment takes no argument of a name, or calls ``sys.exit()``.
    """
    try:
        yield
    except DependencyNotInstalled as error:
        raise MissingPackageError(
            f"the environment needs a package that is not installed: {_line(source, error)}"
        ) from error
    except ImportError as error:
        if not isinstance(source, EnvSpec):
            raise
        raise MissingPackageError(
            f"{source.id} cannot be made: {error}{_install(source.id)}", name=error.name
        ) from error
    except AttributeError as error:
        if not isinstance(source, EnvSpec) or package_of(source.id) is None:
            raise
        raise MissingPackageError(
            f"{source.id} cannot be made: {error}. Do the versions of its packages go together? "
            f"This is known to do{_install(source.id)}"
        ) from error
    except TypeError as error:
        refused = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if not isinstance(source, EnvSpec) or not kwargs or refused is None:
            raise
        raise ConfigError(
            f"env_kwargs={dict(kwargs)}: {source.id} has no argument {refused[1]!r}."
            f"{_what_it_takes(source, refused[1])}"
        ) from error
    except SignalExit:
        raise
    except SystemExit as error:  # which would end this program without a word
        raise ConfigError(f"the environment called sys.exit({error.code!r}) when made.") from error


def check_made(made: Any, who: str) -> None:
    """Refuse what is no environment of Gymnasium, with what takes it instead.

    Args:
        made: What somebody built.
        who: Who did, such as ``"Factory 0 built"``.

    Raises:
        ConfigError: If it is something else than one environment.
    """
    if isinstance(made, gym.Env):
        return
    if isinstance(made, gym.vector.VectorEnv) or is_envpool(made):
        what = (
            "which is several environments. Build one, with gymnasium.make, and say how many by "
            "num_envs; VectorCollector also takes such an object itself as env"
        )
    elif hasattr(made, "possible_agents") and not hasattr(made, "agent_iter"):
        what = "which has several agents: AgentsCollector takes it, and mappo, ippo, vdn and qmix"
    elif hasattr(made, "possible_agents"):
        what = (
            "whose agents act in turns (PettingZoo's AEC), which nothing here is for: give its "
            "parallel_env, or aec_to_parallel of it, to mappo, ippo, vdn or qmix"
        )
    elif kind_of(made) is not None:
        what = (
            "which steps tensors: WorldCollector takes it, and algorithms a function that makes it"
        )
    else:
        what = "not a gymnasium.Env: give an environment id, or a function that builds one"
        if any(base.__module__.split(".")[0] == "gym" for base in type(made).__mro__):
            what = "of the old Gym: derive it from gymnasium.Env"
    raise ConfigError(f"{who} a {type(made).__name__}, {what}.")


def _line(source: Any, error: Exception) -> str:
    """What to type, or what the environment says."""
    if isinstance(source, EnvSpec) and (package := package_of(source.id)):
        return f"pip install '{package.install}'"
    extra = re.search(r"gymnasium\[([\w-]+)\]", str(error))
    return f"pip install 'hooktrainer[{extra[1]}]'" if extra and extra[1] in _OURS else str(error)


def _install(env_id: str) -> str:
    package = package_of(env_id)
    return f": pip install '{package.install}'" if package else ""


def _what_it_takes(spec: EnvSpec, name: str) -> str:
    entry_point = spec.entry_point
    create: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    try:
        parameters = inspect.signature(create).parameters.values()
    except (TypeError, ValueError):
        return ""
    known = [parameter.name for parameter in parameters if parameter.kind not in _ANY]
    return f"{did_you_mean(name, known)} It takes: {listed(known, most=12) or 'none'}."
