"""Parses command lines for recipes, algorithms and commands.

Integers may be written as ``5e4`` or ``50_000``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..base.words import whole_number

_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _integers(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if kind.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def parse(
    kind: Callable[..., Any],
    words: Sequence[str],
    *,
    prog: str | None = None,
    description: str | None = None,
    default: Any = tyro.MISSING,
) -> Any:
    """Parse a command line, and return what ``kind`` returns for it.

    Args:
        kind: A dataclass whose fields are the options, or a function whose parameters are, which is
            called with them.
        words: The command line, without the program's name.
        prog: The program's name; by default the script's.
        description: The text of help; by default ``kind``'s docstring.
        default: An instance of ``kind`` with the values that the words do not give.

    Raises:
        SystemExit: With 0 after ``--help``, 2 after an error that has been explained on stderr.
    """
    read = partial(tyro.cli, kind, prog=prog, description=description, registry=_REGISTRY)
    if default is not tyro.MISSING:
        read = partial(read, default=default)
    with unread():
        return read(args=words)


@contextmanager
def unread() -> Iterator[None]:
    """In the block, a reader of stdout that has seen enough, such as ``head``, is no error.

    Raises:
        SystemExit: With 0, if it has closed the pipe.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the buffered text fails again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
