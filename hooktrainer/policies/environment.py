"""The environment of a saved policy: how to make it again."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    import gymnasium as gym

    Env = gym.Env[Any, Any]


@dataclasses.dataclass(frozen=True)
class Environment:
    """How to make an environment again: by its id, or by a function or class without arguments.

    Attributes:
        id: As `gymnasium.make` takes it.
        kwargs: Its keyword arguments, with an id.
        wrappers: What is put around it, the innermost first: name of the class, as
            ``module:class``, and keyword arguments.
        factory: The name of a function or class: without an id, the one that makes it; with an id
            that is not Gymnasium's own, the one registered under it.
        module: The module that has it.
        file: The file of that module: that of a script, or where to look if it cannot be imported.
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
        """What to call it."""
        return self.id or self.factory or "unknown"

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Environment:
        """Return what `encode` wrote."""
        fields = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in data.items() if name in fields}
        wrappers = tuple((str(name), dict(kwargs)) for name, kwargs in values.pop("wrappers", ()))
        return cls(**values, wrappers=wrappers)

    def make(self, **kwargs: Any) -> Env:
        """Make the environment.

        Args:
            **kwargs: Keyword arguments beside its own, such as ``render_mode="rgb_array"``.

        Raises:
            ConfigError: If it cannot be made here; says why.
            ModuleNotFoundError: If a package it needs is not installed; it says what to type.
        """
        import gymnasium as gym

        try:
            return self._make_by_id(kwargs) if self.id else self._make_by_factory(kwargs)
        except gym.error.DependencyNotInstalled:
            from ..collectors.missing import explain_missing

            with explain_missing():
                raise
        except gym.error.UnregisteredEnv as error:
            raise ConfigError(
                f"{error} If a package registers {self.id}, import it first; or make the "
                "environment yourself, and pass it as env=."
            ) from None

    def _make_by_id(self, kwargs: Mapping[str, Any]) -> Env:
        import gymnasium as gym

        assert self.id is not None
        source: Any = self.id
        name = self.id.rpartition(":")[2]
        if self.factory is not None and name not in gym.registry:
            # Whoever saved the policy had imported what registers it, and nobody has here.
            source = gym.envs.registration.EnvSpec(
                name, entry_point=self._find_factory(), **self.registered
            )
        env: Env = gym.make(source, disable_env_checker=True, **{**self.kwargs, **kwargs})
        for name, options in self.wrappers:
            module, _, attribute = name.partition(":")
            wrapper = getattr(importlib.import_module(module), attribute, None)
            if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
                raise ConfigError(f"{name} is not a wrapper of environments.")
            env = wrapper(env, **options)
        return env

    def _make_by_factory(self, kwargs: Mapping[str, Any]) -> Env:
        import gymnasium as gym

        if self.factory is None:
            raise ConfigError(
                "the policy does not say how to make its environment again: "
                f"{self.reason or 'nothing was recorded'}. Make it yourself, and pass it as env=."
            )
        if more := sorted(kwargs.keys() - {"render_mode"}):
            raise ConfigError(f"{self.factory} takes no arguments, so {', '.join(more)} cannot be.")
        env = self._find_factory()()
        if not isinstance(env, gym.Env):
            raise ConfigError(f"{self.factory} made a {type(env).__name__}, not a gymnasium.Env.")
        if kwargs:  # drawn by the innermost environment, which only looks at this
            env.unwrapped.render_mode = kwargs["render_mode"]
        return env

    def _find_factory(self) -> Any:
        assert self.factory is not None
        made = getattr(self._import_module(), self.factory, None)
        if not callable(made):
            raise ConfigError(f"{self.file or self.module} has no {self.factory} any more.")
        return made

    def _import_module(self) -> ModuleType:
        if self.module == "__main__":
            return _run_script(Path(str(self.file)))
        name = str(self.module)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if self.file is None or error.name != name.partition(".")[0]:
                raise
        file = Path(self.file)
        depth = name.count(".") + (file.name == "__init__.py")
        if not file.is_file():
            raise ConfigError(
                f"the environment is made by the module {name}, which cannot be imported here, nor "
                f"is it in {file} any more."
            )
        with _importing_from(file.parents[depth]):
            return importlib.import_module(name)


def _run_script(path: Path) -> ModuleType:
    """A script as a module, without what it does only as a script."""
    name = f"hooktrainer_env_{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    if not path.is_file():
        raise ConfigError(f"the environment is made by {path}, which is not there.")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _importing_from(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing_from(directory: Path) -> Iterator[None]:
    """In the block, modules are also looked for in a directory, after all other places."""
    sys.path.append(str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
