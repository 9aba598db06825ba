"""One call of an operator in a program: its arguments, each checked against the operator's schema.

A program knows no other types than those here, so an argument that would take another (a storage,
a generator, another layout) can only be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from .operators import operator_named

MOST_ITEMS: Final = 4_096
"""So many values may be in one list of arguments."""

DTYPES: Final = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64"),
    )
}
"""The types of numbers of programs, weights and observations."""

_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "dtype": DTYPES,
    "layout": {"strided": torch.strided},
    "memory_format": {name: getattr(torch, name) for name in _FORMATS},
    "device": {"cpu": torch.device("cpu")},
    "float": {name: float(name) for name in ("inf", "-inf", "nan")},
}
_OF_TYPE = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}
_TYPE = re.compile(r"(Optional\[)?(List\[)?(Optional\[)?(\w+)\]*")
_BITS = 63


class Value(int):
    """The number of a value, in place of an argument."""


class Batch(int):
    """How many times the batch size, in place of an argument."""


class Call:
    """One call: its constant arguments, and where the others are filled in.

    Args:
        target: The operator's name, or ``getitem``.
        args: Its arguments; see `Program`.
        kwargs: Its keyword arguments.
        index: Numbers of the values there are, by name.

    Attributes:
        target: The operator's name.
        reads: The numbers of the values that it uses.
        needs_batch: Whether an argument follows the batch size.
        result: The number of its result.

    Raises:
        CheckpointError: If the operator is unknown or not allowed.
        KeyError: If there is no such value.
        TypeError: If an argument is not what the operator takes.
        ValueError: Likewise.
    """

    def __init__(
        self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], index: Mapping[str, int]
    ) -> None:
        self.target = target
        self.result = -1
        self.reads: set[int] = set()
        self.needs_batch = False
        self._index = index
        self._kwargs: dict[str, Any] = {}
        self._places: list[str] = []  # names of the arguments in order
        self._device = False
        if target == "getitem":
            self._function: Callable[..., Any] = _item
            types = [("of", "Tensor"), ("number", "int")]
            arguments = [self._parse(v, t) for v, (_, t) in zip(args, types, strict=True)]
            if kwargs or not isinstance(arguments[0], Value):
                raise ValueError("getitem takes a value and a number")
            self.defaults: dict[str, Any] = {}
        else:
            self._function = operator_named(target)
            schema: Any = self._function
            arguments = self._bind(schema._schema.arguments, args, kwargs)
        self._args: list[Any] = [None if _varies(value) else value for value in arguments]
        self._filled = [(n, value) for n, value in enumerate(arguments) if _varies(value)]
        del self._index

    def _bind(self, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        positional = [argument for argument in schema if not argument.kwarg_only]
        if len(args) > len(positional):
            raise TypeError(f"{self.target} takes {len(positional)} arguments, not {len(args)}")
        self.defaults = {argument.name: argument.default_value for argument in schema}
        self._places = [argument.name for argument in positional]
        types = {argument.name: str(argument.real_type) for argument in schema}
        given = [
            self._parse(value, types[argument.name])
            for value, argument in zip(args, positional, strict=False)
        ]
        for name, value in kwargs.items():
            if name not in types or name in self._places[: len(given)]:
                raise TypeError(f"{self.target} takes no {name!r:.40} here")
            self._kwargs[name] = self._parse(value, types[name])
            if _varies(self._kwargs[name]):
                raise TypeError(f"{name} of {self.target} is no constant")
        self._kwargs.pop("pin_memory", None)
        self._kwargs.pop("device", None)
        self._device = "device" in types and "device" not in self._places[: len(given)]
        return given

    def __call__(self, values: Sequence[Any], batch: int, device: str = "cpu") -> Any:
        """Calculate.

        Args:
            values: All values, by number.
            batch: The batch size.
            device: Where tensors are made.
        """
        args = self._args.copy()
        for place, value in self._filled:
            args[place] = _fill(value, values, batch)
        if self._device:
            return self._function(*args, **self._kwargs, device=device)
        return self._function(*args, **self._kwargs)

    def named(self, values: Sequence[Any], batch: int) -> dict[str, Any]:
        """Return the arguments by name, those that were left out with their defaults."""
        args = self._args.copy()
        for place, value in self._filled:
            args[place] = _fill(value, values, batch)
        return {**self.defaults, **dict(zip(self._places, args, strict=False)), **self._kwargs}

    def _parse(self, value: Any, kind: str) -> Any:
        match = _TYPE.fullmatch(kind)
        if match is None:
            raise TypeError(f"{self.target} takes a {kind}")
        optional, listed, optional_items, name = match.groups()
        if value is None and optional:
            return None
        if listed and isinstance(value, list):
            if len(value) > MOST_ITEMS:
                raise ValueError(f"{self.target} has a list of {len(value)} arguments")
            return [None if v is None and optional_items else self._one(v, name) for v in value]
        if listed and name == "Tensor":
            raise TypeError(f"{self.target} takes a list of tensors")
        return self._one(value, name)

    def _one(self, value: Any, kind: str) -> Any:
        if isinstance(value, str):
            if kind != "Tensor":
                raise TypeError(f"{self.target} takes a {kind}, not {value!r:.40}")
            found = Value(self._index[value.removeprefix("%")])
            self.reads.add(found)
            return found
        if isinstance(value, dict):
            ((word, content),) = value.items()
            return self._special(word, content, kind)
        if isinstance(value, bool):
            fits = kind in ("bool", "number", "Tensor")
        elif isinstance(value, int):
            fits = kind in ("int", "SymInt", "float", "number", "Tensor")
            fits = fits and value.bit_length() <= _BITS
        else:
            fits = isinstance(value, float) and kind in ("float", "number", "Tensor")
        if not fits:
            raise TypeError(f"{self.target} takes a {kind}, not {value!r:.40}")
        return value

    def _special(self, word: str, content: Any, kind: str) -> Any:
        if word == "batch" and kind in ("int", "SymInt") and type(content) is int:
            if not 0 <= content.bit_length() <= 32:
                raise ValueError(f"{content} times the batch size")
            self.needs_batch = True
            return Batch(content)
        if word == "text" and kind == "str" and isinstance(content, str) and len(content) < 32:
            return content
        if word == "device" and kind == "Device":
            return _KINDS["device"]["cpu"]  # wherever it was
        fits = word == _OF_TYPE.get(kind)
        fits = fits or (word == "float" and kind in ("float", "number", "Tensor"))
        if not fits or not isinstance(content, str) or content not in _KINDS[word]:
            raise ValueError(f"{content!r:.40} is no {word} for a {kind} of {self.target}")
        return _KINDS[word][content]


def _item(of: Any, number: int) -> Any:
    if not isinstance(of, (list, tuple)):
        raise TypeError("getitem is for results of several tensors")
    return of[number]


def _varies(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_varies, value))
    return isinstance(value, (Value, Batch))


def _fill(value: Any, values: Sequence[Any], batch: int) -> Any:
    if isinstance(value, list):
        return [_fill(item, values, batch) for item in value]
    if isinstance(value, Value):
        return values[value]
    return value * batch if isinstance(value, Batch) else value
