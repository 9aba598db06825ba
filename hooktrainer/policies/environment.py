"""The environment of a saved policy, of one agent or several: how to make it again."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..base.child_program import ChildProgram, end_with_parent
from ..base.untrusted import one_line
from ..base.words import printable
from ..errors import ConfigError
from .trust import code_of, code_of_agents, find_callable

if TYPE_CHECKING:
    import gymnasium as gym

    Env = gym.Env[Any, Any]

MOST_BYTES: Final = 2 << 30
"""Memory for making an untrusted environment and taking its first step."""
MOST_SECONDS: Final = 60
"""CPU time for the same."""

_TRY: Final = "hooktrainer.policies.environment"
_MOST_WRAPPERS: Final = 100
_OUT_OF_MEMORY: Final = 3  # exit code of that
_GYMNASIUMS = ("id", "disable_env_checker")  # arguments of gymnasium.make that are not the file's


@dataclasses.dataclass(frozen=True)
class Environment:
    """How to make an environment: by its id, or by a function or class without arguments.

    Attributes:
        id: As for `gymnasium.make`.
        kwargs: Its keyword arguments, with an id.
        wrappers: Its wrappers, the innermost first: ``module:class`` and keyword arguments.
        factory: The name of a function or class: without an id, the one that makes it; with an id
            that is not Gymnasium's own, the one registered under it.
        module: The factory's module.
        file: The module's file: a script, or where to look if the module cannot be imported.
        registered: With an id and a factory, the other arguments of the registration.
        reason: Without id and factory, why it cannot be made again.
    """

    id: str | None = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wrappers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    factory: str | None = None
    module: str | None = None
    file: str | None = None
    registered: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reason: str | None = None

    @property
    def name(self) -> str:
        """Its name for messages."""
        return printable(self.id or self.factory or "unknown")

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Environment:
        """Return what `encode` wrote."""
        fields = {field.name for field in dataclasses.fields(cls)}
        given = {name: value for name, value in data.items() if name in fields}
        wrappers = tuple((name, kwargs) for name, kwargs in given.pop("wrappers", ()))
        if len(wrappers) > _MOST_WRAPPERS:
            raise ValueError(f"there are {len(wrappers):,} wrappers")
        found = cls(**given, wrappers=wrappers)
        texts = (found.id, found.factory, found.module, found.file, found.reason)
        names = [text for text in texts if text is not None] + [name for name, _ in wrappers]
        options = [found.kwargs, found.registered, *(each for _, each in wrappers)]
        for kind, values in ((str, names), (dict, options)):
            if wrong := [value for value in values if not isinstance(value, kind)]:
                raise TypeError(f"{wrong[0]!r:.80} is in the place of something else")
        if more := set(_GYMNASIUMS) & found.kwargs.keys():
            raise ValueError(f"{more.pop()} is no argument of an environment")
        return found

    @property
    def code(self) -> str | None:
        """What making it would import, run or read beyond installed packages; ``None`` if nothing.

        `trust` has the rule. Only Gymnasium is imported to find out.
        """
        if self.id is not None and self._is_known():
            return self._code_of_id()
        if self.factory is None:  # so nothing can be made of it in any case
            return None
        place = f"the module {self.module}" + (f" in {self.file}" if self.file else "")
        if self.module == "__main__":
            place = f"the script {self.file}"
        return printable(f"{self.factory} of {place}")

    def _is_known(self) -> bool:
        """Whether the id is registered here, or names a module."""
        import gymnasium as gym

        from ..base.env_packages import register_known

        register_known(str(self.id))
        return ":" in str(self.id) or self.id in gym.registry

    def _code_of_id(self) -> str | None:
        return code_of(str(self.id), self.kwargs, self.wrappers)

    def make(self, *, trust: bool = False, **kwargs: Any) -> Any:
        """Make the environment.

        Args:
            trust: Whether to import, run or read what it needs beyond installed packages; see
                `code`.
            **kwargs: Further keyword arguments, such as ``render_mode="rgb_array"``.

        Raises:
            ConfigError: If it cannot be made here, or needs trust.
            ModuleNotFoundError: If a package is not installed; the message has the install command.
        """
        if not trust and (code := self.code) is not None:
            raise ConfigError(
                f"the environment {self.name} needs {code}, which may do anything: look at that, "
                "then say --trust (in Python: trust=True), or make the environment yourself and "
                "pass it as env=."
            )
        given = [self.kwargs, *(options for _, options in self.wrappers)]
        has_sizes = any(
            not isinstance(value, (bool, str, type(None)))
            for options in given
            for value in options.values()
        )
        if has_sizes and not trust:
            renders = kwargs.get("render_mode") is not None
            coded = json.dumps([self.encode(), renders], sort_keys=True)
            if why := _too_large(coded, MOST_BYTES, MOST_SECONDS):
                raise ConfigError(
                    f"the environment {self.name} was tried in another process, and {why}: look at "
                    "its arguments in policy.json, then say --trust (in Python: trust=True)."
                )
        return self.made(**kwargs)

    def made(self, **kwargs: Any) -> Any:
        """Make the environment without checking trust; see `make`."""
        import gymnasium as gym

        if self.id is None and self.factory is None:
            raise ConfigError(
                "the policy does not say how to make its environment again: "
                f"{printable(self.reason or 'nothing was recorded')}. Make it yourself, and pass "
                "it as env=."
            )
        try:
            if self.id:
                return self._make_by_id(kwargs)
            factory = find_callable(str(self.factory), str(self.module), self.file)
            return self._make_by_factory(factory, kwargs)
        except gym.error.DependencyNotInstalled:
            from ..collect.env_errors import explain_env_errors

            with explain_env_errors():
                raise
        except (ConfigError, ModuleNotFoundError):
            raise
        except Exception as error:  # whatever the environment raises
            reason = printable(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            raise ConfigError(f"the environment {self.name} could not be made: {reason}") from error

    def _make_by_id(self, kwargs: Mapping[str, Any]) -> Env:
        import gymnasium as gym

        env: Env = gym.make(self._spec(), disable_env_checker=True, **{**self.kwargs, **kwargs})
        for name, options in self.wrappers:
            env = _wrapper(name)(env, **options)
        return env

    def _spec(self) -> Any:
        """What is registered under the id, here or where the policy was saved."""
        import gymnasium as gym

        from ..base.env_packages import register_known

        module, _, name = str(self.id).rpartition(":")
        register_known(name)
        if module and name not in gym.registry and self.factory is None:
            importlib.import_module(module)
        if name in gym.registry:
            return gym.registry[name]
        if self.factory is None:
            raise ConfigError(
                f"there is no environment {one_line(name, 80)} here. If a package registers "
                f"it, import it first; or make the environment yourself, and pass "
                "it as env=."
            )
        # The id was registered by a module imported in training, which is not imported here.
        return gym.envs.registration.EnvSpec(
            name,
            entry_point=find_callable(self.factory, str(self.module), self.file),
            **self.registered,
        )

    def _make_by_factory(self, factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        import gymnasium as gym

        env = factory()
        if not isinstance(env, gym.Env):
            raise ConfigError(f"{self.name} made a {type(env).__name__}, not a gymnasium.Env.")
        return self._rendered(env, kwargs)

    def _rendered(self, env: Any, kwargs: Mapping[str, Any]) -> Any:
        """The environment, which draws itself as requested; no other argument is possible."""
        if more := sorted(kwargs.keys() - {"render_mode"}):
            raise ConfigError(f"{self.name} takes no arguments, so {', '.join(more)} cannot be.")
        if kwargs:  # drawn by the innermost environment, which only looks at this
            getattr(env, "unwrapped", env).render_mode = kwargs["render_mode"]
        return env


@functools.lru_cache(maxsize=64)
def _too_large(coded: str, memory: int, seconds: int) -> str | None:
    """Make an environment in a child process; describe the bound that it exceeded."""
    try:
        child = ChildProgram(
            *(_TRY, coded, str(memory), str(seconds)),
            environ={"OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:  # of arguments that are too long for a process
        return f"could not be: {error.strerror}"
    try:
        code = child.wait(10 * seconds)
    finally:
        child.kill()
    if code is None or -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"took more than {seconds} s"
    if code == _OUT_OF_MEMORY:
        return f"takes more than {memory >> 20:,} MiB of memory"
    return f"ended that with exit code {code}" if code else None


def _wrapper(place: str) -> Any:
    import gymnasium as gym

    module, _, name = place.partition(":")
    wrapper = getattr(importlib.import_module(module), name, None)
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise ConfigError(f"{printable(place)} is not a wrapper of environments.")
    return wrapper


# -- Environments of several agents.

VMAS, PETTINGZOO = "vmas/", "pettingzoo/"


class AgentsEnvironment(Environment):
    """How to make a parallel environment of several agents again.

    Its ``id`` is ``"vmas/<scenario>"`` or ``"pettingzoo/<family>/<name>"``; its ``factory`` is a
    VMAS scenario class, or a function that makes a parallel environment. Both take ``kwargs``.
    """

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return {**super().encode(), "several": True}

    def _is_known(self) -> bool:
        return True

    def _code_of_id(self) -> str | None:
        return code_of_agents(str(self.id), self.kwargs)

    def _make_by_id(self, kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.parallel_world import pettingzoo_factory

        name = str(self.id)
        if name.startswith(VMAS):
            return self._vmas(name.removeprefix(VMAS), kwargs)
        if not name.startswith(PETTINGZOO):
            raise ConfigError(f"{self.name} is no environment of several agents.")
        return pettingzoo_factory(name.removeprefix(PETTINGZOO), {**self.kwargs, **kwargs})()

    def _make_by_factory(self, factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.parallel_world import checked_env
        from ..collect.agents.worlds import is_scenario

        if is_scenario(factory):
            return self._vmas(factory, kwargs)
        return self._rendered(checked_env(factory(**self.kwargs), self.name), kwargs)

    def _vmas(self, scenario: Any, kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.vmas import VmasParallel

        return VmasParallel(scenario, **{**self.kwargs, **kwargs})


def decode_environment(data: Mapping[str, Any]) -> Environment:
    """Return what ``encode`` wrote, with the errors of `Environment.decode`."""
    return (AgentsEnvironment if data.get("several") is True else Environment).decode(data)


# -- The child process that tries an untrusted environment: ``python -m … JSON BYTES SECONDS``.


def _try(env: Any, *, renders: bool) -> None:
    env.reset(seed=0)
    if renders:
        env.render()
    if hasattr(env, "possible_agents"):
        env.step({name: env.action_space(name).sample() for name in env.agents})
    else:
        env.step(env.action_space.sample())


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "allocat" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> int:
    """Make the environment of the command line and take one step, within bounds of memory and time.

    The exit code is 0 within the bounds, also if the environment raises another error.
    """
    end_with_parent()
    coded, memory, seconds = sys.argv[1:]
    environment, renders = json.loads(coded)
    for kind, bound in (
        (resource.RLIMIT_DATA, int(memory)),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))
    try:
        kwargs = {"render_mode": "rgb_array"} if renders else {}
        _try(decode_environment(environment).made(**kwargs), renders=renders)
    except Exception as error:  # reported when it is made outside of the trial
        return _OUT_OF_MEMORY if _is_out_of_memory(error) else 0
    return 0


if __name__ == "__main__":
    os._exit(main())  # whatever an environment does at its end
