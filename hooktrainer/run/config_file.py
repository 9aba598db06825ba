"""A run's ``config.yaml`` as values: ``--config FILE`` makes the run again.

The values become those of the fields, each checked against its type. They are never words of a
command line: a file of unknown origin gives no options.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import tyro

from ..base.untrusted import one_line, shown
from ..base.words import did_you_mean, printable, whole_number
from ..errors import ConfigError
from ..store.run_files import read_config
from . import command_line
from .config import RunConfig
from .fields import hints_of

OPTION: Final = "--config"
TRUST: Final = "--trust"
"""With `OPTION`: import and run what the file names."""
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
        return read_config(file / "config.yaml", file) if file.is_dir() else read_config(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration {file}.") from None


def take_config(words: Sequence[str]) -> tuple[Path | None, bool, list[str]]:
    """The file that ``--config`` names, whether ``--trust`` goes with it, and the other words.

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
    own = rest[: rest.index("--")] if "--" in rest else rest
    trust = file is not None and TRUST in own
    if trust:
        rest.remove(TRUST)
    return file, trust, rest


def parse_run(
    kind: type[Any],
    words: Sequence[str],
    *,
    saved: Mapping[str, Any] | None = None,
    default: Callable[[Mapping[str, Any], Sequence[str]], Any] | None = None,
    prog: str | None = None,
    description: str | None = None,
) -> Any:
    """Return the run that a command line describes; ``--config`` says what the words do not.

    Args:
        kind: The class of the run.
        words: The command line, without the program's name.
        saved: Values of fields, in place of those of ``--config``.
        default: Makes the run that the words change, of the values and the words; by default
            ``kind`` is called with the values.
        prog: As for `command_line.parse`.
        description: Likewise.

    Raises:
        ConfigError: If there is no option of a name, or the file is no configuration of ``kind``.
        FileNotFoundError: If there is no such file.
        SystemExit: As `command_line.parse`.
    """
    file, trust, rest = take_config(words)
    if file is not None:
        given = {field_of(word) for word in rest if word.startswith("--")}
        saved = values_in(kind, file, given, trust=trust)
    if default is not None:
        made = default(saved or {}, rest)
    else:
        made = filled(kind, saved) if saved else tyro.MISSING
    return command_line.parse(kind, rest, prog=prog, description=description, default=made)


def filled(kind: type[Any], values: Mapping[str, Any], known: Mapping[str, Any] = {}) -> Any:
    """A run with these values; fields that need one and have none are left to the command line.

    Args:
        kind: The class of the run.
        values: Values of fields.
        known: Further fields that have a value.
    """
    missing = {
        one.name: tyro.MISSING
        for one in fields(kind)
        if MISSING is one.default is one.default_factory and one.name not in {**known, **values}
    }
    return kind(**values, **missing)


def from_plain(kind: type[Any], plain: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Values of fields from plain values: lists become tuples, and words numbers.

    Args:
        kind: The class that has the fields.
        plain: Plain values by name of a field.
        subject: What a message begins with.

    Raises:
        ConfigError: If there is no such option, or a value is not one of it.
    """
    hints = hints_of(kind)
    names = {one.name for one in fields(kind)}
    known = [name for name in names if tyro.conf.Suppress not in get_args(hints[name])]
    made = {}
    for name, value in plain.items():
        if name not in known:
            hint = did_you_mean(name[:80], sorted(known))
            raise ConfigError(f"{subject}: there is no option {one_line(name, 80)}.{hint}")
        try:
            made[name] = _value(value, hints[name])
        except (TypeError, ValueError, RecursionError):
            raise ConfigError(f"{subject}: {name}: {shown(value)} is no value of it.") from None
    return made


def values_in(
    kind: type[Any], file: Path, given: Collection[str] = (), *, trust: bool = False
) -> dict[str, Any]:
    """The values of fields out of a file.

    Args:
        kind: The class that has the fields.
        file: The file; of a run's directory its ``config.yaml``.
        given: Fields whose values are left out, since they are given otherwise.
        trust: Whether it may name what is imported and run.

    Raises:
        ConfigError: If it is no configuration of ``kind``, or needs trust.
        FileNotFoundError: If there is no such file.
    """
    subject = printable(file)
    plain = {n: v for n, v in read_named(file).items() if n not in {*_NOT_AGAIN, *given}}
    values = from_plain(kind, plain, subject)
    code = kind.code_in(values) if issubclass(kind, RunConfig) else None
    if code is not None and not trust:
        raise ConfigError(
            f"{subject} needs {code}, which may do anything: look at that, then say {TRUST}, or "
            "give that option yourself."
        )
    return values


def _value(value: Any, hint: Any) -> Any:
    """The value of a field that has an annotation.

    Raises:
        TypeError: If it cannot be one.
        ValueError: Likewise.
    """
    hint = _bare(hint)
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and (type(None) in members or hint is Any):
        return None
    for member in members[:-1]:
        with suppress(TypeError, ValueError):
            return _of_type(value, _bare(member))
    return _of_type(value, _bare(members[-1]))


def _bare(hint: Any) -> Any:
    """An annotation without what is said beside the type."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _of_type(value: Any, kind: Any) -> Any:
    origin = get_origin(kind)
    if origin is Literal and isinstance(value, str) and value in get_args(kind):
        return value
    if origin is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_item(item, get_args(kind)[0]) for item in items)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return json.loads(json.dumps(value))  # what JSON can say, as the command line has it
    if isinstance(value, str):
        if kind in (str, Any) and "\0" not in value:
            return value
        if kind in (int, float, Path):
            return (whole_number if kind is int else kind)(value)
    if type(value) in (int, float) and kind in (int, float):
        return whole_number(repr(value)) if kind is int else float(value)
    if type(value) is kind is bool or (kind is Any and type(value) is int):
        return value
    raise TypeError


def _item(value: Any, kind: Any) -> Any:
    """One of several values; none of a command line begins with a dash either."""
    if isinstance(value, str) and value.startswith("-"):
        raise ValueError
    return _value(value, kind)


def as_words(config: Mapping[str, Any]) -> list[str]:
    """The words of a command line that say what a configuration does, to be shown to people."""
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
