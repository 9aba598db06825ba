"""Parsing untrusted JSON and YAML, checking fields, and one-line messages."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import reprlib
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ..words import printable

_LONGEST = 400
MAX_YAML = 1 << 18
"""Maximum characters of a YAML text."""
_DEEPEST = 100


class MalformedError(ValueError):
    """A file does not have the expected content."""


def one_line(text: object, longest: int = _LONGEST) -> str:
    """Return ``text`` as one line of printable characters, shortened to ``longest``."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def shown(value: object) -> str:
    """Return an untrusted value as text for a message, shortened; other than plain data by type.

    The `repr` of a tensor computes, and that of a deep list ends in a RecursionError.
    """
    plain = isinstance(value, (str, bytes, int, float, list, dict, tuple, set, type(None)))
    return one_line(_SHORT.repr(value) if plain else f"a {type(value).__name__}", 80)


class _Short(reprlib.Repr):
    """Shortens plain data; shows only the type of other values."""

    def repr_instance(self, x: Any, level: int) -> str:
        return f"a {type(x).__name__}"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


@contextmanager
def refusing(subject: object, error: type[Exception] = MalformedError) -> Iterator[None]:
    """Convert exceptions of malformed data in the block to one error of one line.

    Exceptions of class ``error`` and `OSError` pass unchanged, unless a position in a file was
    impossible.
    """
    try:
        yield
    except error:
        raise
    except Exception as problem:  # a hole in a structure shows in any way Python has
        if isinstance(problem, OSError) and problem.errno != errno.EINVAL:
            raise
        kind = "" if isinstance(problem, MalformedError) else f"{type(problem).__name__}: "
        raise error(one_line(f"{subject}: {kind}{problem}")) from problem


def parse_json(data: bytes | str, *, nan: bool = False) -> Any:
    """Parse JSON."""
    try:
        text = data if isinstance(data, str) else data.decode()  # others would be guessed at
        return json.loads(text, parse_constant=None if nan else _refuse_constant)
    except MalformedError:
        raise
    except RecursionError:
        raise MalformedError("it is nested too deep") from None
    except ValueError as error:
        raise MalformedError(f"it is not valid JSON: {one_line(error, 200)}") from None


def _refuse_constant(name: str) -> Any:
    raise MalformedError(f"it is not valid JSON: {name} is no number there")


def parse_yaml(text: str) -> Any:
    """Parse a YAML document of plain values, without aliases."""
    import yaml

    if len(text) > MAX_YAML:
        raise MalformedError(f"it has {len(text):,} characters, more than {MAX_YAML:,}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
                raise MalformedError("it is nested too deep, or refers to its parts")
        made = yaml.safe_load(text)
        str(made)  # refuses numbers of thousands of digits, which no message could show
        return made
    except MalformedError:
        raise
    except Exception as error:  # PyYAML's constructors raise what they happen to
        kind = "" if isinstance(error, (yaml.YAMLError, ValueError)) else f"{type(error).__name__} "
        raise MalformedError(f"it is not valid YAML: {kind}{one_line(error, 200)}") from None


# -- Whether plain data is of the types that are written down for it.

Data = TypeVar("Data")


def check_fields(fields: object, model: type) -> None:
    """Check a mapping against the annotations of a dataclass or `TypedDict`; see `decode_data`.

    Args:
        fields: The mapping, by name of the field.
        model: The annotated class. Fields of a dataclass without default are required, and unknown
            ones refused; not so for a `TypedDict`.

    Raises:
        MalformedError: Names the first field that is missing, unknown, or of another type.
    """
    if not isinstance(fields, Mapping):
        raise MalformedError(f"it holds a {type(fields).__name__} in place of named fields")
    hints = _hints(model)
    if dataclasses.is_dataclass(model):
        for field in dataclasses.fields(model):
            has_default = (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
            if field.name not in fields and not has_default:
                raise MalformedError(f"it lacks {field.name!r}")
        for name in fields:
            if name not in hints:
                raise MalformedError(f"it has a field {shown(name)}, which is unknown")
    for name, value in fields.items():
        if name in hints:
            try:
                _decoded(hints[name], value)
            except (TypeError, ValueError, LookupError):
                kind = type(value).__name__
                raise MalformedError(f"its {name!r} is a {kind}: {shown(value)}") from None


def decode_data(kind: type[Data], data: Any) -> Data:
    """Make a dataclass from its fields in a file, each checked by its annotation.

    Integers are from 0 to 2**63 - 1; lists become tuples; unknown fields are ignored. A value of
    another type is a `ValueError` or `TypeError`.
    """
    hints = _hints(cast(Any, kind))
    given = {name: _decoded(hints[name], data[name]) for name in hints if name in data}
    return kind(**given)


@functools.cache
def _hints(model: type) -> dict[str, Any]:
    return get_type_hints(model)


def _decoded(hint: Any, value: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        for choice in inner:
            with suppress(TypeError, ValueError, LookupError):
                return _decoded(choice, value)
    elif origin is Literal:
        if any(value == one and type(value) is type(one) for one in inner):
            return value
    elif origin in (tuple, Sequence):
        if isinstance(value, (list, tuple)):
            all_alike = origin is Sequence or inner[-1] is ...
            hints = [inner[0]] * len(value) if all_alike else inner
            return tuple(_decoded(*pair) for pair in zip(hints, value, strict=True))
    elif origin in (dict, Mapping):
        if isinstance(value, Mapping):
            return {_decoded(inner[0], k): _decoded(inner[1], v) for k, v in value.items()}
    elif dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return decode_data(cast(type[Any], hint), value)
    elif hint is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    elif hint is int:
        if type(value) is int and 0 <= value < 1 << 63:
            return value
    elif isinstance(value, hint):
        return value
    raise ValueError(f"a {type(value).__name__} is no {getattr(hint, '__name__', hint)}")
