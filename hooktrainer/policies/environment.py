"""The environment of a saved policy, of one agent or several: how to make it again."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.imports import search_last
from ..base.untrusted import decode_data, one_line
from ..base.words import printable
from ..errors import ConfigError, MissingPackageError
from .trust import code_of, code_of_agents, find_callable

if TYPE_CHECKING:
    import gymnasium as gym

    Env = gym.Env[Any, Any]

_MOST_WRAPPERS: Final = 100


@dataclasses.dataclass(frozen=True)
class Environment:
    """The specification of an environment: its id, or a function or class without arguments.

    Attributes:
        id: As for `gymnasium.make`.
        kwargs: Its keyword arguments.
        wrappers: Its wrappers, the innermost first: ``module:class`` and keyword arguments.
        directories: Where to look for the modules of wrappers that need trust.
        factory: The name of a function or class: without an id, the one that makes it; with an id
            that is not Gymnasium's own, the one registered under it.
        module: The factory's module.
        file: The module's file: a script, or where to look if the module cannot be imported.
        registered: With an id and a factory, the other arguments of the registration.
        reason: Without id and factory, why it cannot be made again.
        several: Whether it is a parallel environment of several agents. Its ``id`` is
            ``"vmas/<scenario>"`` or ``"pettingzoo/<family>/<name>"``; its ``factory`` is a VMAS
            scenario class, or a function that makes a parallel environment.
    """

    id: str | None = None
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wrappers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    directories: tuple[str, ...] = ()
    factory: str | None = None
    module: str | None = None
    file: str | None = None
    registered: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reason: str | None = None
    several: bool = False

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
        found = decode_data(cls, data)
        if len(found.wrappers) > _MOST_WRAPPERS:
            raise ValueError(f"there are {len(found.wrappers):,} wrappers")
        if more := {"id", "disable_env_checker"} & found.kwargs.keys():  # gymnasium.make's own
            raise ValueError(f"{more.pop()} is no argument of an environment")
        return found

    @property
    def code(self) -> str | None:
        """The code or files that making it needs beyond installed packages; ``None`` if nothing.

        `trust` has the rule. Only Gymnasium is imported to find out.
        """
        if self.id is not None and self.several:
            return code_of_agents(self.id, self.kwargs)
        if self.id is not None:
            import gymnasium as gym

            from ..base.env_packages import register_known

            register_known(self.id)
            if ":" in self.id or self.id in gym.registry:
                return code_of(self.id, self.kwargs, self.wrappers)
        if self.factory is None:  # so nothing can be made of it in any case
            return None
        place = f"the module {self.module}" + (f" in {self.file}" if self.file else "")
        if self.module == "__main__":
            place = f"the script {self.file}"
        return printable(f"{self.factory} of {place}")

    @property
    def option(self) -> str:
        """`` --trust`` if commands that make it need that, else nothing."""
        from ..base.env_packages import package_of

        # Other processes know an id only if a package that is known registers it.
        unknown = self.factory and package_of(self.id or "") is None
        return " --trust" if self.code or unknown else ""

    def make(self, *, trust: bool = False, **kwargs: Any) -> Any:
        """Make the environment.

        Args:
            trust: Whether to import, run or read what it needs beyond installed packages; see
                `code`.
            **kwargs: Further keyword arguments, such as ``render_mode="rgb_array"``.

        Raises:
            ConfigError: If it cannot be made here, or needs trust.
            MissingPackageError: If a package or module is not found.
        """
        if not trust and (code := self.code) is not None:
            raise ConfigError(
                f"the environment {self.name} needs {code}, which may do anything: look at that, "
                "then pass --trust (in Python: trust=True), or your own as env=."
            )
        import gymnasium as gym

        for directory in self.directories if trust else ():
            search_last(Path(directory))
        if self.id is None and self.factory is None:
            raise ConfigError(
                "the policy has no description of its environment: "
                f"{printable(self.reason or 'nothing was recorded')}. Make it yourself, and pass "
                "it as env=."
            )
        try:
            return self._made_for_several(kwargs) if self.several else self._made_for_one(kwargs)
        except gym.error.DependencyNotInstalled:
            from ..collect.make_envs import explain_env_errors

            with explain_env_errors():
                raise
        except ConfigError:
            raise
        except ModuleNotFoundError as error:  # of a wrapper, or of what registers the id
            raise MissingPackageError(
                f"the environment {self.name} could not be made: {error}: install it, or set "
                "PYTHONPATH to the directory of that module.",
                name=error.name,
            ) from error
        except Exception as error:  # whatever the environment raises
            reason = one_line(f"{type(error).__name__}: {error}", 300)
            raise ConfigError(f"the environment {self.name} could not be made: {reason}") from error

    def _made_for_one(self, kwargs: Mapping[str, Any]) -> Env:
        import gymnasium as gym

        if self.id is None:
            from ..collect.make_envs import make_one

            made = make_one(self._factory(), self.kwargs)
            for name, given in self.wrappers:
                wrap: Any = gym.envs.registration.load_env_creator(name)
                made = wrap(made, **given)
            return self._rendered(made, kwargs)
        spec = self._spec()
        if self.wrappers:
            from gymnasium.envs.registration import WrapperSpec

            wrappers = tuple(WrapperSpec(name, name, dict(given)) for name, given in self.wrappers)
            spec = dataclasses.replace(spec, additional_wrappers=wrappers)
        return gym.make(spec, disable_env_checker=True, **{**self.kwargs, **kwargs})

    def _made_for_several(self, kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.parallel_env import checked_env, pettingzoo_factory
        from ..collect.agents.vmas import VmasParallel
        from ..collect.make_envs import is_scenario

        given = {**self.kwargs, **kwargs}
        if self.id is None:
            factory = self._factory()
            if is_scenario(factory):
                return VmasParallel(factory, **given)
            return self._rendered(checked_env(factory(**self.kwargs), self.name), kwargs)
        package, _, name = self.id.partition("/")
        if package == "vmas":
            return VmasParallel(name, **given)
        if package != "pettingzoo":
            raise ConfigError(f"{self.name} is no environment of several agents.")
        return checked_env(pettingzoo_factory(name)(**given), self.name)

    def _factory(self) -> Any:
        return find_callable(str(self.factory), str(self.module), self.file)

    def _spec(self) -> Any:
        """The entry registered under the id, here or where the policy was saved."""
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
                f"there is no environment {one_line(name, 80)} here. If a package registers it, "
                "import that first; or make it yourself, and pass it as env=."
            )
        # The id was registered by a module imported in training, which is not imported here.
        return gym.envs.registration.EnvSpec(name, entry_point=self._factory(), **self.registered)

    def _rendered(self, env: Any, kwargs: Mapping[str, Any]) -> Any:
        """The environment, which draws itself as requested; no other argument is possible."""
        if more := sorted(kwargs.keys() - {"render_mode"}):
            raise ConfigError(f"{self.name} takes no arguments, so {', '.join(more)} cannot be.")
        if kwargs:  # drawn by the innermost environment, which only looks at this
            getattr(env, "unwrapped", env).render_mode = kwargs["render_mode"]
        return env
