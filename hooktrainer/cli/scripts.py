"""Command lines of training scripts."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.words import printable
from ..errors import ConfigError
from ..run.seeds import OWN
from ..store.ownership import is_own_command

_PLACE = ("--run-dir", "--resume")
_FORK = ("--fork",)
_READS_OPTIONS = re.compile(
    r"\b(launch|argv|argparse|optparse|getopt|tyro|click|typer|fire|hydra|absl)\b|\.main\(|parse_arg"
)


def refuse_run_options(args: Iterable[str]) -> None:
    """Refuse the options of a script that a command gives itself.

    Raises:
        ConfigError: If ``--run-dir`` or ``--resume`` is there.
    """
    for arg in args:
        if _option(arg) in _PLACE:
            raise ConfigError(f"leave out {_option(arg)} after --: this command gives it itself.")


def without_run_options(args: Iterable[str]) -> list[str]:
    """Return arguments without ``--run-dir``, ``--resume`` and ``--fork``, and their values."""
    return without(args, _PLACE + _FORK)


def without_fork(args: Iterable[str]) -> list[str]:
    """Return arguments as they resume a run that they begin, maybe as a branch of another."""
    return without(args, _FORK)


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
    """Return the value of an option, the last if it is there several times; ``None`` without it."""
    for index in reversed(range(len(args))):
        if _option(args[index]) == option:
            _, equals, value = args[index].partition("=")
            return value if equals else next(iter(args[index + 1 :]), None)
    return None


def command_of(run: Path, state: Mapping[str, Any]) -> list[str]:
    """Return the command that began a run, less what says where, ``--resume`` and ``--fork``.

    Args:
        run: Directory of the run.
        state: The content of its ``run.json``.

    Raises:
        ConfigError: If the run does not know.
        FileNotFoundError: If the script is gone.
    """
    script, module, argv = state.get("script"), state.get("module"), state.get("argv", [])
    words = [script, module, *(argv if isinstance(argv, list) else [0])]
    if not all(word is None or (isinstance(word, str) and "\0" not in word) for word in words):
        raise ConfigError(f"{run} does not say which script it was begun by: run.json is damaged.")
    if not script:
        began = f" ({state['command']})" if state.get("command") else ""
        raise ConfigError(
            f"{run} does not say which script it was begun by{began}. Start that yourself, with "
            f"--run-dir {run} --resume latest."
        )
    if not Path(script).is_file():
        raise FileNotFoundError(f"the script of {run} is gone: {script}.")
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
    return [sys.executable, *start, *without_run_options(argv)]


def _takes_options(script: str) -> bool:
    """Whether a program seems to read its command line."""
    try:
        source = Path(script).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return True
    return _READS_OPTIONS.search(source) is not None


def check_own(run: Path, state: Mapping[str, Any], command: Sequence[str], *, trust: bool) -> None:
    """Refuse to run a command that a directory names, unless this user's programs wrote that.

    Args:
        run: Directory of the run.
        state: The content of its ``run.json``, which names what ``command`` begins with.
        command: The command.
        trust: Whether it is run all the same.

    Raises:
        ConfigError: If it is somebody else's; names it.
    """
    if not trust and not is_own_command(state):
        raise ConfigError(
            f"{run} was not begun by you on this machine, and would run what its directory says: "
            f"{printable(shlex.join(command))} in {printable(state.get('cwd'))}. Look at that, "
            "then say --trust."
        )


def place_of(run: Path, options: Mapping[str, Any], seed: int | None) -> list[str]:
    """Return what the command that began a run says to have it in its directory.

    Args:
        run: That directory.
        options: The content of its ``config.yaml``.
        seed: The run's.
    """
    if options.get("seeds") == OWN:  # a command for several, of which it is one
        return ["--seeds", f"{seed}-{seed}", "--run-dir", str(run.absolute().parent)]
    return ["--run-dir", str(run.absolute())]


def _option(word: str) -> str:
    return word.split("=", 1)[0].replace("_", "-")
