"""Code that a saved policy names: imported or run when somebody trusts it, and never before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ConfigError


def find_callable(name: str, module: str, file: str | None) -> Callable[..., Any]:
    """Return a function or class of a module, which is imported for it.

    Args:
        name: What it is called there.
        module: The module; that of a script is ``__main__``.
        file: The script, or where to look for a module that cannot be imported.

    Raises:
        ConfigError: If the module or the name in it is gone.
    """
    found = getattr(_import_module(module, file), name, None)
    if not callable(found):
        raise ConfigError(f"{file or module} has no {name} any more.")
    return found


def _import_module(name: str, file: str | None) -> ModuleType:
    if name == "__main__":
        return _run_script(Path(str(file)))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None or error.name != name.partition(".")[0]:
            raise
    path = Path(file)
    depth = name.count(".") + (path.name == "__init__.py")
    if not path.is_file():
        raise ConfigError(
            f"the environment is made by the module {name}, which cannot be imported here, nor "
            f"is it in {path} any more."
        )
    with _importing_from(path.parents[depth]):
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
