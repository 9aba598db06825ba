"""Plain Python and NumPy values as JSON and back, exactly, with what they share.

Beside the values, it keeps that two names mean one list, or that an array is a view of another: an
environment may rely on a change of one being seen in the other.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.wrappers.utils import RunningMeanStd

from ..base.untrusted import MalformedError, parse_json, refusing, shown
from ..base.untrusted.array_file import check_bit_generator, check_shape, plain_dtype

Array = npt.NDArray[Any]

_KINDS = frozenset(
    ("same", "scalar", "tuple", "list", "deque", "dict", "array", "view", "generator", "moments")
)


class NotPlainError(TypeError):
    """A value is neither plain data nor a known constant."""


def dumps(value: Any) -> str:
    """``value`` as text.

    Args:
        value: ``None``, bool, int, float, str, NumPy array, scalar or generator, Gymnasium's
            running moments, or a list, tuple, dict or deque of these.

    Raises:
        NotPlainError: If it holds anything else, or an array whose memory is not NumPy's own.
    """
    return json.dumps(_Encoder().code(value), separators=(",", ":"))


def loads(text: str, current: Any = None) -> Any:
    """The value of ``text``.

    Args:
        text: What `dumps` returned.
        current: A value of like structure. Its generators and running moments are set to the saved
            state and used in the result, so that whoever else holds them goes on with them.

    Raises:
        MalformedError: If it is not what `dumps` returns.
    """
    with refusing("the state of an environment"):
        return _Decoder().value(parse_json(text, nan=True), current)


class _Encoder:
    """Scalars as they are, everything else as ``{kind: content}``; known objects as numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is used again once its object is gone

    def code(self, value: Any) -> Any:
        if isinstance(value, np.generic):  # first: np.float64 is a float
            return {"scalar": [value.dtype.str, _text(np.asarray(value))]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is tuple:
            return {"tuple": [self.code(item) for item in value]}
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if type(value) is list:
            return {"list": [self.code(item) for item in value]}
        if type(value) is deque:
            return {"deque": [value.maxlen, *(self.code(item) for item in value)]}
        if type(value) is dict:
            return {"dict": [[self.code(key), self.code(item)] for key, item in value.items()]}
        if isinstance(value, np.random.Generator):
            return {"generator": _Encoder().code(value.bit_generator.state)}
        if isinstance(value, RunningMeanStd):
            return {"moments": self.code(vars(value))}
        raise NotPlainError(f"a {type(value).__module__}.{type(value).__qualname__}")

    def _array(self, array: Array) -> Any:
        if array.dtype.hasobject:
            raise NotPlainError("an array of objects")
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root.base is not None:
            raise NotPlainError(f"an array in the memory of a {type(root.base).__qualname__}")
        if root is array:
            strides = None
            if not array.flags.c_contiguous:
                strides = list(array.strides)
                array = array.transpose(np.argsort(strides)[::-1])  # as it lies in memory
            return {"array": [root.dtype.str, list(root.shape), strides, _text(array)]}
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        place = [array.dtype.str, list(array.shape), offset, list(array.strides)]
        return {"view": [*place, self.code(root)]}


class _Decoder:
    """The inverse: objects get the same numbers in the same order."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def value(self, code: Any, current: Any = None) -> Any:
        if not isinstance(code, dict):
            return code
        ((kind, content),) = code.items()
        if kind not in _KINDS:
            raise MalformedError(f"{shown(kind)} is no kind of value")
        if kind == "same":
            return self._objects[content]
        if kind == "scalar":
            return _flat(*content)[0]
        if kind == "tuple":
            return tuple(self.value(item) for item in content)
        number = len(self._objects)
        self._objects.append(None)
        self._objects[number] = getattr(self, f"_{kind}")(content, current, number)
        return self._objects[number]

    def _list(self, content: Any, current: Any, number: int) -> list[Any]:
        known = current if isinstance(current, list) else []
        found = self._objects[number] = []
        for item, old in itertools.zip_longest(content, known[: len(content)]):
            found.append(self.value(item, old))
        return found

    def _deque(self, content: Any, current: Any, number: int) -> deque[Any]:
        found = self._objects[number] = deque(maxlen=content[0])
        found.extend(self.value(item) for item in content[1:])
        return found

    def _dict(self, content: Any, current: Any, number: int) -> dict[Any, Any]:
        known = current if isinstance(current, dict) else {}
        found = self._objects[number] = {}
        for key_code, code in content:
            key = self.value(key_code)
            found[key] = self.value(code, known.get(key))
        return found

    def _array(self, content: Any, current: Any, number: int) -> Array:
        dtype, shape, strides, text = content
        flat = _flat(dtype, text)
        check_shape(shape)
        if math.prod(shape) != len(flat):
            raise MalformedError(f"an array {shape} has {len(flat)} numbers")
        if strides is not None:
            return np.ndarray(shape, dtype, flat, strides=strides)
        found = np.empty(shape, dtype)  # of its own memory, as the saved one was
        found.reshape(-1)[...] = flat
        return found

    def _view(self, content: Any, current: Any, number: int) -> Array:
        dtype, shape, offset, strides, root_code = content
        check_shape(shape)
        root = self.value(root_code)
        while isinstance(root.base, np.ndarray):
            root = root.base
        return np.ndarray(shape, plain_dtype(dtype), root, offset, strides)

    def _generator(self, content: Any, current: Any, number: int) -> np.random.Generator:
        state = check_bit_generator(_Decoder().value(content))
        found = current
        if not isinstance(found, np.random.Generator):
            found = np.random.Generator(getattr(np.random, state["bit_generator"])())
        found.bit_generator.state = state
        return found

    def _moments(self, content: Any, current: Any, number: int) -> RunningMeanStd:
        found = current
        if not isinstance(found, RunningMeanStd):
            found = RunningMeanStd()  # type: ignore[no-untyped-call]
        moments = self.value(content, vars(found))
        if type(moments) is not dict or moments.keys() != vars(found).keys():
            raise MalformedError("running moments are a mean, a variance and a count")
        vars(found).update(moments)
        return found


def _text(array: Array) -> str:
    return base64.b85encode(array.tobytes()).decode()


def _flat(dtype: str, text: str) -> Array:
    return np.frombuffer(base64.b85decode(text), plain_dtype(dtype)).copy()
