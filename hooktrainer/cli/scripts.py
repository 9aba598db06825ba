"""Command lines of training scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError

_PLACE = ("--run-dir", "--resume")
_FORK = ("--fork",)


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
    return _without(args, _PLACE + _FORK)


def without_fork(args: Iterable[str]) -> list[str]:
    """Return arguments as they resume a run that they begin, maybe as a branch of another."""
    return _without(args, _FORK)


def _without(args: Iterable[str], options: Sequence[str]) -> list[str]:
    kept, words = [], iter(args)
    for word in words:
        if _option(word) not in options:
            kept.append(word)
        elif "=" not in word:
            next(words, None)
    return kept


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
    start = ["-m", module] if module else [script]
    return [sys.executable, *start, *without_run_options(argv)]


def _option(word: str) -> str:
    return word.split("=", 1)[0].replace("_", "-")
