"""A run's ``config.yaml`` as options: ``--config FILE`` makes the run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError
from ..store.run_files import read_config

OPTION: Final = "--config"
NAME: Final = "name"
"""The entry that says which recipe or algorithm it is."""

_NOT_AGAIN: Final = (NAME, "run_dir", "resume", "fork", "allow_change")
"""What belongs to the run that left the file, not to the one that is to be made."""
_REPEATED: Final = ("logger", "allow_change")
"""Options that are given once for each of several values."""


def read_named(file: Path) -> dict[str, Any]:
    """Read a configuration that somebody names; of a run's directory its ``config.yaml``.

    Raises:
        ConfigError: If it is no configuration.
        FileNotFoundError: If there is no such file.
    """
    try:
        return read_config(file / "config.yaml" if file.is_dir() else file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration {file}.") from None


def take_config(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The file that ``--config`` names, and the other words.

    Raises:
        ConfigError: If no file follows it.
    """
    file, rest, remaining = None, [], iter(words)
    for word in remaining:
        if word == "--":
            rest += [word, *remaining]
        elif word == OPTION or word.startswith(f"{OPTION}="):
            named = word[len(OPTION) + 1 :] if "=" in word else next(remaining, "")
            if not named:
                raise ConfigError(f"{OPTION}: name the config.yaml of a run.")
            file = Path(named)
        else:
            rest.append(word)
    return file, rest


def with_config(words: Sequence[str]) -> list[str]:
    """Words of a command line in which ``--config FILE`` is what it stands for.

    What is said beside it goes before what is in the file.

    Raises:
        ConfigError: If the file is no configuration.
        FileNotFoundError: If there is no such file.
    """
    file, rest = take_config(words)
    if file is None:
        return rest
    given = {field_of(word) for word in rest if word.startswith("--")}
    saved = read_named(file)
    kept = {n: v for n, v in saved.items() if n not in _NOT_AGAIN and n not in given}
    return [*as_words(kept), *rest]


def as_words(config: Mapping[str, Any]) -> list[str]:
    """The words of a command line that say what a configuration does."""
    words: list[str] = []
    for name, value in config.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, dict):
            words += [option, json.dumps(value)]
        elif isinstance(value, list) and name in _REPEATED:
            words += [word for one in value for word in (option, str(one))]
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        else:
            words.append(f"{option}={value}")
    return words


def field_of(option: str) -> str:
    """The field that a word of a command line is about: ``lr`` for ``--lr=0.1``."""
    name = option[2:].split("=", 1)[0].replace("-", "_")
    return name.removeprefix("no_")
