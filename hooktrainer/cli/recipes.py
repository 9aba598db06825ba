"""Finding what can be trained by name: recipes, which are scripts, and algorithms."""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..base.words import did_you_mean
from ..errors import ConfigError

DIRECTORY: Final = Path("recipes")
"""Where recipes are looked for first."""

SHIPPED: Final = (Path(__file__).parents[1] / "_recipes", Path(__file__).parents[2] / "recipes")
"""Where this package's own are: in an installed one, in a clone."""

ALGORITHM_MODULE: Final = "hooktrainer.cli.algorithm"
"""What is run with ``-m`` to train with an algorithm."""


@dataclass(frozen=True)
class Trainable:
    """Something that trains.

    Attributes:
        name: By which it is found.
        script: The recipe's file; ``None`` for an algorithm.
    """

    name: str
    script: Path | None = None

    @property
    def command(self) -> list[str]:
        """The command line that trains with it, without further arguments."""
        if self.script is not None:
            return [sys.executable, str(self.script)]
        return [sys.executable, "-m", ALGORITHM_MODULE, self.name]

    @property
    def summary(self) -> str:
        """What it says about itself, in one line."""
        if self.script is not None:
            try:
                return _first_line(ast.parse(self.script.read_text(encoding="utf-8")))
            except (OSError, SyntaxError, ValueError):
                return ""
        return _first_line(_algorithms()[self.name])


def recipes() -> list[Trainable]:
    """The recipes in the directory where this is called, and those of this package."""
    shipped = next((directory for directory in SHIPPED if directory.is_dir()), DIRECTORY)
    found: dict[str, Path] = {}
    for directory in (DIRECTORY, shipped):
        for path in sorted(directory.glob("*.py")) if directory.is_dir() else ():
            if not path.stem.startswith("_"):
                found.setdefault(path.stem, path)
    return [Trainable(name, path) for name, path in found.items()]


def algorithms() -> list[Trainable]:
    """The algorithms of this package."""
    return [Trainable(name) for name in _algorithms()]


def find_trainable(name: str) -> Trainable:
    """Return the script, the recipe or the algorithm that a word names; a recipe comes first.

    Raises:
        FileNotFoundError: If it is the path of a script that is not there.
        ConfigError: If there is nothing of that name; it lists the nearest.
    """
    path = Path(name)
    if path.suffix == ".py" or len(path.parts) > 1:
        if path.is_file():
            return Trainable(path.stem, path)
        raise FileNotFoundError(f"there is no script {name}.")
    here = {recipe.name: recipe for recipe in recipes()}
    if name in here:
        return here[name]
    known = {algorithm.name: algorithm for algorithm in algorithms()}
    if name.lower() in known:
        return known[name.lower()]
    hint = did_you_mean(name, [*here, *known], most=3)
    there = f"Recipes: {', '.join(here)}. " if here else ""
    raise ConfigError(
        f"there is nothing to train called {name!r}.{hint} {there}Algorithms: {', '.join(known)}."
    )


@functools.cache
def _algorithms() -> dict[str, ast.ClassDef]:
    """The classes of the algorithms by name, read, not imported: that would import PyTorch."""
    return {
        node.name.lower(): node
        for file in sorted((Path(__file__).parents[1] / "algorithms").glob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(d, ast.Name) and d.id == "algorithm" for d in node.decorator_list)
    }


def _first_line(node: ast.Module | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").split("\n", 1)[0]
