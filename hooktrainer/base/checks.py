"""Checks of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Final, TypeVar

from ..errors import ConfigError
from .words import did_you_mean, listed

Choice = TypeVar("Choice")


def check_count(name: str, value: Any, *, none: str | None = None, least: int = 1) -> None:
    """Refuse ``value`` unless it is an integer of at least ``least``."""
    if value is None and none is not None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        extra = f", or None ({none})" if none else ""
        kind = "a positive integer" if least == 1 else f"an integer of {least} or more"
        raise ConfigError(f"{name}={value!r}: pass {kind}{extra}.")


def check_fraction(name: str, value: float) -> float:
    """Return ``value`` if it is between 0 and 1, both included."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{name}={value!r}: pass a number between 0 and 1.")
    return value


def check_positive(name: str, value: Any, what: str = "number", *, none: str = "") -> None:
    """Refuse ``value`` unless it is a number above 0, possibly infinite."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
        extra = f", or None ({none})" if none else ""
        raise ConfigError(f"{name}={value!r}: pass a positive {what}{extra}.")


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse ``value`` unless it is one of ``choices``."""
    if value not in (known := list(choices)):
        raise ConfigError(f"{name}={value!r}: pass {' or '.join(map(repr, known))}.")


def named(option: str, name: str, choices: Mapping[str, Choice], more: str = "") -> Choice:
    """Return the choice of this name; the error names the option, the choices, and ``more``."""
    if name not in choices:
        raise ConfigError(
            f"{option}={name!r} is unknown.{did_you_mean(name, choices)} The choices are "
            f"{listed(choices, most=40)}{more}."
        )
    return choices[name]


def check_seed(name: str, value: Any) -> None:
    """Refuse ``value`` unless it is an integer from 0 to 2**63 - 1."""
    check_count(name, value, least=0)
    if value >= 2**63:
        raise ConfigError(f"{name}={value!r:.80}: pass an integer below 2**63.")


def check_rate(name: str, value: float) -> float:
    """Return ``value`` if it is finite and not negative."""
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{name}={value!r}: pass a finite number of 0 or more.")
    return value


def share_equally(number: int, world_size: int, what: str) -> int:
    """Return one process's share of ``number``."""
    if number % world_size:
        raise ConfigError(
            f"{what}={number} cannot be shared equally by {world_size} processes: give a multiple "
            f"of {world_size}."
        )
    return number // world_size


def check_names(
    name: str, given: Iterable[str], known: Iterable[str], instead: Mapping[str, str]
) -> None:
    """Refuse unknown arguments; ``instead`` has advice for some of them."""
    known = list(known)
    for other in given:
        if other not in known:
            todo = instead.get(other)
            near = f" {todo}." if todo else did_you_mean(other, known)
            what = near or f" It takes: {', '.join(known)}."
            raise TypeError(f"{name} has no argument {other!r}.{what}")


# -- Seeds of training, evaluation and tuning. They are kept apart: no result is measured on the
# seeds that it was trained or chosen with.

TUNING_SEEDS: Final = range(1_000_000_000, 2_000_000_000)
"""Seeds of runs that select options; reports exclude them."""
EVALUATION_SEEDS: Final = range(2_000_000_000, 2_000_001_000)
"""Seeds of evaluations; no run is trained from one."""
EVALUATION_SEED: Final = 2_000_000_011
"""The default seed of evaluations."""


def check_training_seed(name: str, value: Any) -> None:
    """Refuse a value that is no seed, or a seed reserved for evaluation."""
    check_seed(name, value)
    if int(value) in EVALUATION_SEEDS:
        raise ConfigError(
            f"{name}={value} is kept for evaluation, whose episodes training must not see: pass "
            f"another, such as {value - EVALUATION_SEEDS.start}."
        )
