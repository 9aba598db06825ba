"""Parsing untrusted JSON and YAML, checking fields, and one-line messages."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import reprlib
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..words import printable

if TYPE_CHECKING:
    import yaml

_LONGEST = 400
MAX_YAML = 1 << 20
"""Maximum characters of a YAML text."""
_MAX_NODES = 100_000
_MOST_DIGITS = 1000
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

    Exceptions of class ``error`` and `OSError` pass unchanged.
    """
    try:
        yield
    except (error, OSError):
        raise
    except Exception as problem:  # a hole in a structure shows in any way Python has
        kind = "" if isinstance(problem, MalformedError) else f"{type(problem).__name__}: "
        raise error(one_line(f"{subject}: {kind}{problem}")) from problem


@contextmanager
def places_in_file() -> Iterator[None]:
    """Convert the error of an impossible file position to `MalformedError`."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise MalformedError("it names a place that no file has") from None


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
    """Parse a YAML document of plain values."""
    import yaml

    if len(text) > MAX_YAML:
        raise MalformedError(f"it has {len(text):,} characters, more than {MAX_YAML:,}")
    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _count(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except MalformedError:
        raise
    except RecursionError:
        raise MalformedError("it is nested too deep") from None
    except Exception as error:  # PyYAML's constructors raise what they happen to
        kind = "" if isinstance(error, (yaml.YAMLError, ValueError)) else f"{type(error).__name__} "
        raise MalformedError(f"it is not valid YAML: {kind}{one_line(error, 200)}") from None


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    import yaml

    class Shallow(yaml.SafeLoader):
        """Limits nesting, since PyYAML takes quadratic time in open brackets."""

        def fetch_flow_collection_start(self, token_class: Any) -> None:
            if self.flow_level >= _DEEPEST:
                raise MalformedError("it is nested too deep")
            super().fetch_flow_collection_start(token_class)

    return Shallow


def _count(node: Any, known: dict[int, int]) -> int:
    """Count the values of a YAML node after expanding aliases."""
    if not isinstance(node.value, list):
        if node.tag.endswith(":int") and len(node.value) > _MOST_DIGITS:
            raise MalformedError(f"it holds a number of {len(node.value):,} digits")
        return 1
    if id(node) not in known:
        known[id(node)] = _MAX_NODES  # should it meet itself
        parts = [x for pair in node.value for x in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_count(part, known) for part in parts)
    if known[id(node)] > _MAX_NODES:
        raise MalformedError(f"its aliases stand for more than {_MAX_NODES:,} values")
    return known[id(node)]


# -- Whether plain data is of the types that are written down for it.


def check_fields(fields: object, model: type) -> None:
    """Check a mapping against the annotations of a dataclass or `TypedDict`.

    An ``int`` may have up to 64 bits, and is accepted for a ``float``.

    Args:
        fields: The mapping, by name of the field.
        model: The annotated class. Fields of a dataclass without default are required, and unknown
            ones refused; not so for a `TypedDict`.

    Raises:
        MalformedError: Names the first field that is missing, unknown, or of another type.
    """
    if not isinstance(fields, Mapping):
        raise MalformedError(f"it holds {_kind(fields)} in place of named fields")
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
        if name in hints and not _fits(value, hints[name]):
            raise MalformedError(f"its {name!r} is {_wrong(value, hints[name])}")


@functools.cache
def _hints(model: type) -> dict[str, Any]:
    return get_type_hints(model)


def _fits(value: object, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    if origin is not None and issubclass(origin, Mapping):
        key, item = args
        return isinstance(value, Mapping) and all(
            _fits(k, key) and _fits(v, item) for k, v in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, (list, tuple)) and all(_fits(v, args[0]) for v in value)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, hint)  # type: ignore[arg-type]
    if type(value) is int and hint in (int, float):
        return -(2**63) <= value < 2**64
    return type(value) is hint


def _wrong(value: object, hint: Any) -> str:
    """Describe what is wrong with a value."""
    if get_origin(hint) is Literal:
        return f"{shown(value)}: it must be one of {', '.join(map(str, get_args(hint)))}"
    if type(value) is int and _fits(0, hint):
        return f"{shown(value)}, which has more than 64 bits"
    return f"{_kind(value)}: {shown(value)}"


def _kind(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
