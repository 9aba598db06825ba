"""What a field of a run says beside its type, its default and its help: marks and ranges.

    total_frames: FreeOnResume[Count]
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)]

A mark says in what two runs may differ, a `Range` which values there are: `check_ranges` holds the
fields to theirs. `Between` and `OneOf` say which values are worth trying, for a search. All may
stand in any class that derives from `RunConfig`, and hold in those that derive from it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, auto
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from ..base.checks import check_count, check_fraction, check_rate
from ..base.seed_ranges import check_training_seed
from ..errors import ConfigError

T = TypeVar("T")


class Mark(Enum):
    """When a field may have another value; `MEANS` is in either case."""

    MEANS = auto()
    ON_RESUME = auto()
    AMONG_SEEDS = auto()


Means = Annotated[T, Mark.MEANS]
"""A field that says where the run is kept or by what means it runs, not what it computes."""
FreeOnResume = Annotated[T, Mark.ON_RESUME]
"""A field that may change when the run is resumed."""
FreeAmongSeeds = Annotated[T, Mark.AMONG_SEEDS]
"""A field in which runs may differ and still be seeds of one experiment."""


class Range:
    """The values that a field can have.

    Args:
        check: Refuses any other; is called with the field's name and the value.
    """

    def __init__(self, check: Callable[[str, Any], Any]) -> None:
        self.check = check


@dataclass(frozen=True)
class Between:
    """The values of a number that are worth trying: all from ``low`` to ``high``, both included.

    Args:
        low: The smallest.
        high: The largest.
        log: Whether what counts is the ratio of two values, not their difference.

    Raises:
        ConfigError: If there is nothing between them, or a logarithm of what is not positive.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"low={self.low} is not below high={self.high}")
        if self.log and self.low <= 0:
            raise ConfigError(f"low={self.low} has no logarithm: leave log out, or begin above 0")


@dataclass(frozen=True)
class OneOf:
    """The values that are worth trying.

    Args:
        values: At least two.

    Raises:
        ConfigError: If there are fewer.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ConfigError(f"values={list(self.values)!r} leave no choice: give two or more")


Candidates = Between | OneOf
"""What is said of a field to try values of it."""

Count = Annotated[int, Range(check_count)]
"""An integer of 1 or more."""
Number = Annotated[int, Range(partial(check_count, least=0))]
"""An integer of 0 or more."""
Seed = Annotated[int, Range(check_training_seed)]
"""An integer that every generator takes as its seed, and that is not one of evaluations."""
Fraction = Annotated[float, Range(check_fraction)]
"""A number between 0 and 1."""
Rate = Annotated[float, Range(check_rate)]
"""A finite number of 0 or more."""


def marked(kind: type[Any], *marks: Mark) -> frozenset[str]:
    """The names of the fields of a dataclass that have one of the marks."""
    return frozenset(
        name for name, said in _said(kind).items() if any(mark in said for mark in marks)
    )


def worth_trying(kind: type[Any]) -> dict[str, Candidates]:
    """By field of a dataclass, the values that are worth trying, where it says so.

    What a class says goes before what those say that it is derived from.
    """
    found: dict[str, Candidates] = {}
    for name, said in _said(kind).items():
        for one in said:
            if isinstance(one, (Between, OneOf)):
                found.setdefault(name, one)
    return found


def check_ranges(subject: str, described: Any) -> None:
    """Refuse a value out of the range of its field, and NaN in any field.

    Args:
        subject: What the message begins with.
        described: An instance of a dataclass.

    Raises:
        ConfigError: If there is one; it names the field.
    """
    for name, said in _said(type(described)).items():
        given = getattr(described, name)
        for value in given if isinstance(given, tuple) else (given,):
            for one in said:
                if isinstance(one, Range) and value is not None:
                    one.check(f"{subject}: {name}", value)
            if isinstance(value, float) and math.isnan(value):
                raise ConfigError(f"{subject}: {name}={value!r}: pass a number.")


def hints_of(kind: type[Any]) -> Mapping[str, Any]:
    """The annotations of a class by field, with what is said beside the types."""
    one: Any = kind  # of a frozen dataclass mypy does not believe that it is hashable
    return _hints(one)


@functools.cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _said(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """By field, what is said at it, also by a class that it is derived from."""
    said: dict[str, tuple[Any, ...]] = {}
    for base in filter(is_dataclass, kind.__mro__):
        hints = hints_of(base)
        for field in fields(base):
            said[field.name] = (*said.get(field.name, ()), *_metadata(hints[field.name]))
    return said


def _metadata(hint: Any) -> tuple[Any, ...]:
    """The marks and ranges of an annotation and, of a union, of its members."""
    own = tuple(getattr(hint, "__metadata__", ()))
    inner = [one for one in get_args(hint) if hasattr(one, "__metadata__") or get_args(one)]
    return own + tuple(said for one in inner for said in _metadata(one))
