"""Objects by name: ``path/to/file.py:Name`` or ``module:Name``."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
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
    place, colon, own = name.rpartition(":")
    if not colon or not place or not own:
        raise ConfigError(f"{name!r}: name an object as path/to/file.py:Name or module:Name.")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
        if not hasattr(module, own):
            raise ConfigError(f"{name}: there is no {own} in it.{did_you_mean(own, vars(module))}")
        return getattr(module, own)
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{name}: {error}: install what it needs.") from error
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error


def _import_module(name: str) -> Any:
    here = str(Path.cwd())
    sys.path.insert(0, here)  # as python -m does, which a command does not
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _import_file(file: Path) -> Any:
    if not file.is_file():
        raise NotFoundError(f"there is no file {file}.")
    name = re.sub(r"\W", "_", str(file.resolve()))  # its stem may be that of another module
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
