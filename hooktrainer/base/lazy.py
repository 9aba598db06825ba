"""Names of a package that are imported at their first use, and optional packages.

A package lists its names as imports for type checkers and editors::

    if TYPE_CHECKING:
        from .evaluate import Evaluate as Evaluate
    else:
        __getattr__, __dir__, __all__ = attach(__name__, __file__)

``from .hooks import *`` includes the names that the package ``.hooks`` lists in the same way.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import MissingPackageError


def attach(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Submodules are available too.
    """
    home = names_listed(Path(file))

    def get(name: str) -> Any:
        if name in home:
            module, original = home[name]
            if not module:  # a part of the package itself
                return import_module(f"{package}.{original}")
            value = getattr(import_module(f".{module}", package), original)
            setattr(sys.modules[package], name, value)
            return value
        if not name.startswith("_"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names, sorted(name for name, (module, _) in home.items() if module)


def names_listed(file: Path) -> dict[str, tuple[str, str]]:
    """Return the relative module and original name of each name in an ``__init__.py``."""
    found: dict[str, tuple[str, str]] = {}
    for node in _imports(ast.parse(file.read_text(encoding="utf-8"))):
        module = node.module or ""
        for alias in node.names:
            if alias.name == "*":
                inner = file.parent.joinpath(*module.split("."), "__init__.py")
                found |= {name: (module, name) for name in names_listed(inner)}
            else:
                found[alias.asname or alias.name] = (module, alias.name)
    return found


def _imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Yield the relative imports under ``if TYPE_CHECKING:``."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (n for n in node.body if isinstance(n, ast.ImportFrom) and n.level == 1)


def import_optional(module: str, what: str, install: str) -> Any:
    """Import a module of an optional package, without its warnings.

    Args:
        module: The module.
        what: What needs it, for the message.
        install: Argument of ``pip install``.

    Raises:
        MissingPackageError: If it cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs a package that cannot be imported ({error}): pip install '{install}'",
            name=error.name,
        ) from error
