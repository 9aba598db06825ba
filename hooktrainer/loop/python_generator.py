"""`PythonGenerator`: the global generator of Python's `random`, as one loop knows it."""

from __future__ import annotations

import ctypes
import random
import sys
from array import array
from typing import Any

_WORDS = 625  # of 32 bits: a position and 624 numbers, behind what every object begins with


class PythonGenerator:
    """The state of Python's global random generator.

    ``random.getstate`` makes a tuple of 625 numbers, which takes as long as exchanging everything
    else that is global. So it is called only if the generator's memory, which CPython lets one look
    at, has changed.
    """

    def __init__(self) -> None:
        self._seen: Any = None
        self.leave()

    def enter(self) -> None:
        """Have the generator be as it was left."""
        random.setstate(self._state)

    def leave(self) -> None:
        """Remember it as it is."""
        seen = _look()
        if seen != self._seen:
            self._seen, self._state = seen, random.getstate()


def _memory() -> bytes:
    """The generator's position and numbers."""
    return ctypes.string_at(id(_GENERATOR) + object.__basicsize__, 4 * _WORDS)


def _look() -> object:
    """Something that equals what it was before if the generator is what it was."""
    return (_memory(), _GENERATOR.gauss_next) if _IS_KNOWN else object()


def _is_known() -> bool:
    """Whether the memory is what it is taken for."""
    size = max(base.__basicsize__ for base in random.Random.__bases__) - object.__basicsize__
    if sys.implementation.name != "cpython" or size < 4 * _WORDS:
        return False
    position, *numbers = array("I", _memory())
    return (*numbers, position) == random.getstate()[1]


_GENERATOR: Any = random._inst  # whose methods the functions are
_IS_KNOWN = _is_known()
