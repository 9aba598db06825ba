"""Whether plain data is of the types that are written down for it."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .text import MalformedError, shown


def check_fields(fields: object, model: type) -> None:
    """Compare a mapping with the annotations of a dataclass or `TypedDict`.

    An ``int`` has 64 bits at most, and will do for a ``float``; a field that is annotated `Any` may
    be anything.

    Args:
        fields: The mapping, by name of the field.
        model: What has the annotations. Fields without a default must be there, if it is a
            dataclass; fields that it does not have may be there, if it is not.

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
    """What is wrong with a value, in words."""
    if get_origin(hint) is Literal:
        return f"{shown(value)}: it must be one of {', '.join(map(str, get_args(hint)))}"
    if type(value) is int and _fits(0, hint):
        return f"{shown(value)}, which has more than 64 bits"
    return f"{_kind(value)}: {shown(value)}"


def _kind(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
