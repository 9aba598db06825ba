"""Names of a package that are imported when they are first used.

A package lists its names once, as imports for type checkers, and hands out what they say::

    if TYPE_CHECKING:
        from .evaluate import Evaluate as Evaluate
    else:
        __getattr__, __dir__, __all__ = attach(__name__, __file__)

Editors, type checkers and the reference read the imports; whoever imports the package waits for
none of them, and whoever uses one name for that alone. ``from .hooks import *`` gives what the
package ``.hooks`` lists in the same way.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Submodules are found as well, by their names.

    Args:
        package: Its ``__name__``.
        file: Its ``__file__``, in which the names are listed.
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
    """Name to the module where it is at home, relative to the package, and its name there.

    Args:
        file: The ``__init__.py`` that lists them.
    """
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
    """The relative imports below ``if TYPE_CHECKING:``."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (n for n in node.body if isinstance(n, ast.ImportFrom) and n.level == 1)
