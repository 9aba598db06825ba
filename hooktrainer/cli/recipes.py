"""Finding what can be trained by name: recipes, which are scripts, and algorithms."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..base.words import did_you_mean, printable
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
    found: dict[str, Trainable] = {}
    for one in (*_in(DIRECTORY), *_shipped()):
        found.setdefault(one.name, one)
    return list(found.values())


def _shipped() -> list[Trainable]:
    return next((_in(directory) for directory in SHIPPED if directory.is_dir()), [])


def _in(directory: Path) -> list[Trainable]:
    """The recipes in a directory."""
    files = sorted(directory.glob("*.py")) if directory.is_dir() else ()
    return [Trainable(file.stem, file) for file in files if not file.stem.startswith("_")]


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


def trainable_of(words: Sequence[str]) -> tuple[Trainable, list[str]]:
    """What a command line trains, and the words after its name, if it begins with one.

    Where ``--config FILE`` stands in place of a name, the file may name what comes with this
    package; a script, or a recipe of the current directory, only with ``--trust``.

    Raises:
        ConfigError: If there is no such thing, or nothing is named.
        FileNotFoundError: If there is no such file.
    """
    from ..run.config_file import NAME, TRUST, read_named, take_config

    if words and not words[0].startswith("-"):
        return find_trainable(words[0]), list(words[1:])
    file, trust, _ = take_config(words)
    name = None if file is None else read_named(file).get(NAME)
    if not isinstance(name, str):
        raise ConfigError(
            f"{file or 'the command line'} does not say what is to be trained: give the name of a "
            "recipe or an algorithm first, such as: hooktrainer train ppo."
        )
    if not trust:
        shipped = {one.name: one for one in (*_shipped(), *algorithms())}
        if name not in shipped:
            raise ConfigError(
                f"{printable(file)} names {printable(name)!r}, which is neither an algorithm nor a "
                f"recipe of hooktrainer and may do anything: look at it, then say {TRUST}, or give "
                "the name before --config."
            )
        return shipped[name], list(words)
    return find_trainable(name), list(words)


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
