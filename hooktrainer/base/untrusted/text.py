"""JSON and YAML that may be hostile, and the one line that says what is wrong with something."""

from __future__ import annotations

import errno
import functools
import json
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..words import printable

if TYPE_CHECKING:
    import yaml

_LONGEST = 400
MAX_YAML = 1 << 20
"""Characters of the longest YAML that is read."""
_MAX_NODES = 100_000
_MOST_DIGITS = 1000
_DEEPEST = 100


class MalformedError(ValueError):
    """What was read is not what such a file holds."""


def one_line(text: object, longest: int = _LONGEST) -> str:
    """What ``text`` says, in one line of printable characters, cut if it is long.

    Names and values out of a file may hold line breaks, and sequences that steer a terminal.
    """
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def shown(value: object) -> str:
    """A value out of a file as a message shows it: shortened, and nothing but plain data.

    The `repr` of a tensor imports and computes, and that of a deep list ends in a RecursionError.
    """
    plain = isinstance(value, (str, bytes, int, float, list, dict, tuple, set, type(None)))
    return one_line(_SHORT.repr(value) if plain else f"a {type(value).__name__}", 80)


class _Short(reprlib.Repr):
    """Shortens what is plain; of anything else in it only the type is said."""

    def repr_instance(self, x: Any, level: int) -> str:
        return f"a {type(x).__name__}"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


@contextmanager
def refusing(subject: object, error: type[Exception] = MalformedError) -> Iterator[None]:
    """Turn whatever malformed structure comes to in the block into one error of one line.

    Errors of ``error`` itself and of the operating system stay what they are.

    Args:
        subject: What is read, which the line begins with.
        error: What is raised.
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
    """A place beyond what a file can have is the error of what names it, and not the disk's.

    Raises:
        MalformedError: In place of the operating system's error.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise MalformedError("it names a place that no file has") from None


def parse_json(data: bytes | str, *, nan: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        data: The text.
        nan: Whether NaN and infinities may stand in it, which JSON does not know.

    Raises:
        MalformedError: If it is not JSON, or nested too deep.
    """
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
    """Return the value of a YAML document of plain values.

    Raises:
        MalformedError: If it is not YAML, asks for other types, is nested deeper than 100 brackets,
            or is larger than a million characters or, with its aliases written out, 100,000 values.
    """
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
        """PyYAML looks at all open brackets at every token: a second for 6 kB of them."""

        def fetch_flow_collection_start(self, token_class: Any) -> None:
            if self.flow_level >= _DEEPEST:
                raise MalformedError("it is nested too deep")
            super().fetch_flow_collection_start(token_class)

    return Shallow


def _count(node: Any, known: dict[int, int]) -> int:
    """How many values a YAML node has with its aliases written out."""
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
