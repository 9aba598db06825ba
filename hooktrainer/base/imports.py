"""Objects by name: ``path/to/file.py:Name`` or ``module:Name``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ..errors import ConfigError, MissingPackageError, NotFoundError
from .words import did_you_mean

ENV_SCRIPT: Final = "hooktrainer_env"
"""The name of a script that runs only to make the environment of a saved policy."""


def check_may_train() -> None:
    """Raise `ConfigError` in a script that runs only to make the environment of a saved policy."""
    if (script := sys.modules.get(ENV_SCRIPT)) is not None:
        raise ConfigError(
            f"{script.__file__} is run to make the environment of a saved policy, and trains: put "
            'what trains below if __name__ == "__main__":, and the environment above.'
        )


def import_named(name: str) -> Any:
    """Import an object; runs the code of its file or module.

    Args:
        name: ``path/to/file.py:Name`` or ``module:Name``.

    Raises:
        ConfigError: If it cannot be imported.
    """
    place, colon, own = str(name).rpartition(":")
    if not colon or not place or not own:
        raise ConfigError(f"{name!r:.80}: name an object as path/to/file.py:Name or module:Name.")
    try:
        module = import_place(place)
        if not hasattr(module, own):
            raise ConfigError(f"{name}: there is no {own} in it.{did_you_mean(own, vars(module))}")
        return getattr(module, own)
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{name}: {error}: install what it needs.") from error
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error


def import_place(place: str) -> ModuleType:
    """Import ``path/to/file.py`` by its stem, or a module, installed or in the current directory.

    Its directory stays the last that Python searches, for its neighbours and other processes.

    Raises:
        ConfigError: If there is no such file, or it cannot be imported by its stem.
    """
    if place.endswith(".py"):
        return _import_file(Path(place))
    search_last(Path.cwd())
    return importlib.import_module(place)


def _import_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise NotFoundError(f"there is no file {file.absolute()}.")
    found = file.resolve()
    name = found.stem
    if "." in name or name == "__init__":
        raise ConfigError(f"{file}: Python imports no module {name!r}: give the file another name.")
    search_last(found.parent)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        raise ConfigError(
            f"{file}: {error}: name it as a module, such as package.{name}:NAME, in the directory "
            "that holds the package."
        ) from error
    other = getattr(module, "__file__", None)
    if other is None or not found.samefile(other):
        raise ConfigError(
            f"{file}: a module {name} is imported from {other or 'Python itself'}: give the file "
            "another name."
        )
    return module


def search_last(directory: Path) -> None:
    """Let Python search a directory after all others, for good: a module may import later."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
