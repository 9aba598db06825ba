"""Command lines of training scripts."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from ..base.child_program import run_program
from ..base.words import did_you_mean, printable, shell_word
from ..errors import ConfigError, NotFoundError
from ..run.seeds import OWN
from ..store.provenance import is_own_command
from ..store.run_dir import RunDir
from . import output

RUN_OPTIONS: Final = ("--run-dir", "--resume", "--fork")
"""Options that name a run, which a command passes itself."""
MIRROR_OPTIONS: Final = ("--mirror", "--mirror-keep")
"""Options that a copy of a run, or another run, must not have: it would write to its mirror."""
_READS_OPTIONS = re.compile(
    r"\b(launch|argv|argparse|optparse|getopt|tyro|click|typer|fire|hydra|absl)\b|\.main\(|parse_arg"
)


def refuse_run_options(args: Iterable[str]) -> None:
    """Refuse ``--run-dir`` and ``--resume``, which a command passes itself."""
    for arg in args:
        if _option(arg) in ("--run-dir", "--resume"):
            raise ConfigError(f"leave out {_option(arg)} after --: this command passes it.")


def without(args: Iterable[str], options: Sequence[str]) -> list[str]:
    """Return arguments without some options, and their values."""
    kept, words = [], iter(args)
    for word in words:
        if _option(word) not in options:
            kept.append(word)
        elif "=" not in word:
            next(words, None)
    return kept


def value_of(args: Sequence[str], option: str) -> str | None:
    """Return the last value of an option; ``None`` without it."""
    for index in reversed(range(len(args))):
        if _option(args[index]) == option:
            _, equals, value = args[index].partition("=")
            return value if equals else next(iter(args[index + 1 :]), None)
    return None


def command_of(run: Path, state: Mapping[str, Any]) -> list[str]:
    """Return the command that began a run, without its directory, ``--resume`` and ``--fork``.

    Raises:
        ConfigError: If the run's ``run.json``, ``state``, does not have it.
        FileNotFoundError: If the script is gone.
    """
    script, module, argv = state.get("script"), state.get("module"), state.get("argv", [])
    if not script:
        began = f" ({state['command']})" if state.get("command") else ""
        raise ConfigError(
            f"{run} does not name the script that started it{began}. Start that yourself, with "
            f"--run-dir {shell_word(run)} --resume latest."
        )
    if not Path(script).is_file():
        raise FileNotFoundError(
            f"the script of {run} is gone: {script}. If it is elsewhere now, start that with "
            f"--run-dir {shell_word(run)} --resume latest, after its own options: "
            f"{printable(shlex.join(without(argv, RUN_OPTIONS)))}"
        )
    if (
        not module
        and not any(word.startswith("--") for word in argv)
        and not _takes_options(script)
    ):
        again = printable(shlex.join([sys.executable, script, *argv]))
        raise ConfigError(
            f"{run} was begun by a program that reads no options, {script}. Pass "
            f'run_dir="{run}" and resume="latest" in it, and start it again: {again}'
        )
    start = ["-m", module] if module else [script]
    return [sys.executable, *start, *without(argv, RUN_OPTIONS)]


def _takes_options(script: str) -> bool:
    """Guess from its source whether a program reads its command line."""
    try:
        source = Path(script).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return True
    return _READS_OPTIONS.search(source) is not None


def command_again(
    run: Path, words: Sequence[str], *, trust: bool, other: bool = False
) -> tuple[list[str], Path]:
    """Return the command that began a run, with further words, and the directory to start it in.

    Args:
        run: The run's directory.
        words: Further arguments.
        trust: Whether another user or machine may have written the command.
        other: Whether it trains a copy or another run, which must not write to the run's mirror.

    Raises:
        ConfigError: If another user or machine may have written it, unless it is trusted.
        NotFoundError: If the directory is gone.
    """
    state = RunDir(run).read()
    command = command_of(run, state)
    command = [*(without(command, MIRROR_OPTIONS) if other else command), *words]
    directory, shown = Path(str(state.get("cwd")).replace("\0", "")), printable(shlex.join(command))
    if not trust and not is_own_command(state):
        raise ConfigError(
            f"{run} was not begun by you on this machine. Its directory names this command: "
            f"{shown} in {printable(directory)}. Check it, then add --trust."
        )
    if not directory.is_dir():
        raise NotFoundError(
            f"{run} was begun in {directory}, which does not exist; start this elsewhere: {shown}"
        )
    return command, directory


def run_again(
    run: Path, words: Sequence[str], *, trust: bool, other: bool = False
) -> Callable[[], None]:
    """Print the command that `command_again` returns; return what runs it in this process."""
    command, directory = command_again(run, words, trust=trust, other=other)
    output.note(shlex.join(command))
    os.chdir(directory)
    return partial(run_program, command[1:])


def is_one_of_many(run: Path) -> bool:
    """Whether a run was begun with other seeds by one command, which names its directory."""
    return bool(RunDir(run).read_config().get("seeds") == OWN)


def place_of(run: Path, place: Path | None = None) -> list[str]:
    """Return the options that make the command of a run use its directory, or a copy's.

    Raises:
        ConfigError: If the command would find another directory, because this was renamed.
    """
    place = Path(os.path.abspath(place or run))
    if is_one_of_many(run):
        seed = RunDir(run).read().get("seed")
        if place.name != f"seed{seed}":
            raise ConfigError(
                f"{run} is one of several seeds, and its command needs the directory name "
                f"seed{seed}: rename it, or move it to where there is no other seed{seed}."
            )
        return ["--seeds", f"{seed}-{seed}", "--run-dir", str(place.parent)]
    return ["--run-dir", str(place)]


def _option(word: str) -> str:
    return word.split("=", 1)[0].replace("_", "-")


# -- Finding what can be trained by name: recipes, which are scripts, and algorithms.

DIRECTORY: Final = Path("recipes")
"""Where recipes are searched first."""
FAMILIES: Final = {
    "PolicyGradient": "on-policy",
    "PQN": "on-policy",
    "FromReplay": "replay",
    "Offline": "data set",
    "DAgger": "teacher",
    "SeveralAgents": "agents",
    "TextAlgorithm": "sequences",
}
"""Families of algorithms, by their class or a base of it; the last one of several counts."""
SHIPPED: Final = (Path(__file__).parents[1] / "_recipes", Path(__file__).parents[2] / "recipes")
"""The directories of this package's recipes: installed, and in a clone."""


@dataclass(frozen=True)
class Trainable:
    """A recipe or a script; an algorithm, if ``script`` is None."""

    name: str
    script: Path | None = None

    @property
    def command(self) -> list[str]:
        """The command line that trains with it, without further arguments."""
        if self.script is not None:
            return [sys.executable, str(self.script)]
        return [sys.executable, "-m", "hooktrainer", "train", self.name]

    @property
    def family(self) -> str:
        """One of `FAMILIES`, or "recipe"."""
        if self.script is not None:
            return "recipe"
        node = _algorithms()[self.name]
        bases = {node.name, *_bases_of(node)}
        return next((FAMILIES[name] for name in reversed(FAMILIES) if name in bases), "algorithm")

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        if self.script is not None:
            try:
                return _first_line(ast.parse(self.script.read_text(encoding="utf-8")))
            except (OSError, SyntaxError, ValueError):
                return ""
        return _first_line(_algorithms()[self.name])


def _in(directory: Path) -> dict[str, Trainable]:
    files = sorted(directory.glob("[!_]*.py"))
    return {file.stem: Trainable(file.stem, file) for file in files}


def shipped() -> dict[str, Trainable]:
    """Return the recipes and the algorithms of this package by name."""
    recipes = next(filter(None, map(_in, SHIPPED)), {})
    return recipes | {name: Trainable(name) for name in sorted(_algorithms())}


def trainables() -> dict[str, Trainable]:
    """Return the recipes of the current directory and what this package has, by name."""
    found = _in(DIRECTORY)
    return found | shipped() | found


def find_trainable(name: str) -> Trainable:
    """Return the script, the recipe or else the algorithm of this name.

    Raises:
        FileNotFoundError: If it is the path of a script that does not exist.
        ConfigError: If nothing has this name.
    """
    stem, colon, own = name.partition(".py:")
    if colon:
        raise ConfigError(f"{name}: train {stem}.py, with {own}.main() at its end.")
    path = Path(name)
    if path.suffix == ".py" or len(path.parts) > 1:
        if path.is_file():
            return Trainable(path.stem, path)
        raise FileNotFoundError(f"there is no script {name}.")
    known = trainables()
    if (found := known.get(name) or known.get(name.lower())) is None:
        hint = did_you_mean(name, known, most=3)
        raise ConfigError(
            f"there is nothing to train called {name!r}.{hint} There are: {', '.join(known)}."
        )
    return found


def trainable_of(words: Sequence[str]) -> tuple[Trainable, list[str]]:
    """Return what a command line trains, and the words after its name, if it begins with one.

    If the line has ``--config FILE`` and no name, the file's name must be an algorithm or recipe of
    this package; others need ``--trust``.
    """
    from ..run.config import NAME, TRUST, read_named, take_config

    if words and not words[0].startswith("-"):
        return find_trainable(words[0]), list(words[1:])
    file, trust, _ = take_config(words)
    name = None if file is None else read_named(file).get(NAME)
    if not isinstance(name, str):
        raise ConfigError(
            f"{file or 'the command line'} does not name what to train: give the name of a "
            "recipe or an algorithm first, such as: hooktrainer train ppo."
        )
    if (found := find_trainable(name) if trust else shipped().get(name)) is None:
        raise ConfigError(
            f"{printable(file)} names {printable(name)!r}, which is neither an algorithm nor a "
            f"recipe of hooktrainer and may do anything: check it, then add {TRUST}, or give the "
            "name before --config."
        )
    return found, list(words)


def by_family() -> list[Trainable]:
    """Return what can be trained, algorithms first, by family."""
    order = {family: place for place, family in enumerate([*FAMILIES.values(), "algorithm"])}
    return sorted(trainables().values(), key=lambda one: order.get(one.family, len(order)))


@cache
def _classes() -> dict[str, ast.ClassDef]:
    """Return the class definitions of the algorithms, parsed: importing them imports PyTorch."""
    return {
        node.name: node
        for file in sorted((Path(__file__).parents[1] / "algorithms").glob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def _algorithms() -> dict[str, ast.ClassDef]:
    return {
        name.lower(): node
        for name, node in _classes().items()
        if any(isinstance(d, ast.Name) and d.id == "algorithm" for d in node.decorator_list)
    }


def _bases_of(node: ast.ClassDef) -> set[str]:
    """Return the names of the classes that one derives from, in the files of the algorithms."""
    names = {base.id for base in node.bases if isinstance(base, ast.Name)}
    found = [_bases_of(_classes()[name]) for name in names if name in _classes()]
    return names.union(*found)


def _first_line(node: ast.Module | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").split("\n", 1)[0]
