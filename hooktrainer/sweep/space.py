"""`SearchSpace`: the fields of an algorithm that a sweep searches, and their candidates."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from ..algorithms import Algorithm
from ..base.lazy import import_optional
from ..base.plain import without_omegaconf
from ..base.words import did_you_mean, listed
from ..errors import ConfigError
from ..run import Between, OneOf
from ..run.config import Candidates, Mark, check_ranges, from_plain, marked, worth_trying

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MEASURE: Final = (
    *("env", "env_kwargs", "wrappers", "total_frames"),
    *("eval_interval", "eval_episodes", "eval_deterministic", "stop_at"),
)
"""Fields that must be equal in all trials, because trials are compared by them."""


def import_optuna() -> Any:
    """Import Optuna and silence its log, or raise MissingPackageError."""
    optuna = import_optional("optuna", "a sweep", "hooktrainer[sweep]")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclass(frozen=True)
class SearchSpace:
    """The fields that are searched, and their candidates.

    Args:
        algorithm: The run with the defaults.
        candidates: Candidate values by field; `of` reads and checks them.
    """

    algorithm: Algorithm
    candidates: Mapping[str, Candidates]

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        fixed: Collection[str] = (),
        given: Mapping[str, Any] | None = None,
    ) -> SearchSpace:
        """Make the space of the fields' own ranges, without fixed fields, updated by ``given``.

        Args:
            algorithm: The run with the defaults.
            fixed: Fields that are not searched.
            given: By field ``{"low": ..., "high": ..., "log": ...}``, a list of values, or ``None``
                to leave the field out.

        Raises:
            ConfigError: If a field is unknown or cannot be searched, a value is invalid, or nothing
                is left to search.
        """
        found: dict[str, Candidates | None] = dict(worth_trying(algorithm))
        for name, entry in (given or {}).items():
            found[name] = _read(algorithm, name, without_omegaconf(entry))
        order = [one.name for one in fields(algorithm) if one.name in found.keys() - set(fixed)]
        left = {name: one for name in order if (one := found[name]) is not None}
        if not left:
            raise ConfigError(
                f"{algorithm.name()}: there is nothing to search: its fields with ranges, "
                f"{listed(found) or 'none'}, are all fixed. Leave one out, or give a --space."
            )
        return cls(algorithm, left)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions."""
        from optuna import distributions as of

        found: dict[str, BaseDistribution] = {}
        for name, one in self.candidates.items():
            if isinstance(one, OneOf):
                found[name] = of.CategoricalDistribution([_word(value) for value in one.values])
            else:
                is_integer = isinstance(one.low, int)
                made: Any = of.IntDistribution if is_integer else of.FloatDistribution
                found[name] = made(one.low, one.high, log=one.log)
        return found

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return field values from Optuna's parameters."""
        found = {}
        for name, param in params.items():
            one = self.candidates[name]
            found[name] = param
            if isinstance(one, OneOf):
                found[name] = {_word(value): value for value in one.values}[param]
        return found

    def defaults(self) -> dict[str, Any] | None:
        """Return the parameters of the default settings; ``None`` if outside the space."""
        return self.params({name: getattr(self.algorithm, name) for name in self.candidates})

    def params(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the parameters of a run's settings; ``None`` if outside the space."""
        found = {name: _word(settings.get(name)) for name in self.candidates}
        return found if self.holds(found) else None

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Return whether parameters lie in the space."""
        ranges = self.distributions()
        try:
            inner = {name: ranges[name].to_internal_repr(value) for name, value in params.items()}
            return all(
                ranges[name]._contains(one) and ranges[name].to_external_repr(one) == params[name]
                for name, one in inner.items()
            )
        except (KeyError, TypeError, ValueError):
            return False

    def as_dict(self) -> dict[str, Any]:
        """Return the space as plain values, as in a file."""
        return {
            name: list(one.values)
            if isinstance(one, OneOf)
            else {"low": one.low, "high": one.high, "log": one.log}
            for name, one in self.candidates.items()
        }


def _read(algorithm: Algorithm, name: str, entry: Any) -> Candidates | None:
    """Return the candidates of an entry, as values of the field; refuse what it cannot be."""
    kind = type(algorithm)
    known = [one.name for one in fields(kind)]
    if name not in known:
        raise ConfigError(
            f"space: {kind.name()} has no option {name!r}.{did_you_mean(name, known)}"
        )
    if name in _MEASURE or name in marked(kind, Mark.MEANS, Mark.AMONG_SEEDS):
        raise ConfigError(
            f"space: {name} cannot be searched: trials are compared or watched by it, and it does "
            f"not change how {kind.name()} learns. Take it out."
        )
    if entry is None:
        return None
    found: Candidates
    if isinstance(entry, list):
        values = tuple(from_plain(kind, {name: value}, "space")[name] for value in entry)
        found = OneOf(values)
        if len(values) < 2:
            raise ConfigError(f"space: {name}: {list(values)} leave no choice: give two or more.")
    elif isinstance(entry, Mapping) and {"low", "high"} <= entry.keys():
        one = Between(**from_plain(Between, entry, f"space: {name}"))
        if not -math.inf < one.low < one.high < math.inf or (one.log and one.low <= 0):
            raise ConfigError(
                f"space: {name}: give finite numbers, low={one.low} below high={one.high}, and "
                "with log above 0."
            )
        ends = (one.low, one.high)
        values = tuple(from_plain(kind, {name: end}, "space")[name] for end in ends)
        if not all(isinstance(value, (int, float)) for value in values):
            raise ConfigError(f"space: {name} is no number: give a list of the values to try.")
        found = replace(one, low=values[0], high=values[1])
    else:
        raise ConfigError(
            f"space: {name}: {entry!r:.80} is neither {{low: ..., high: ..., log: true}} nor a "
            "list of values: give one of these, or null to leave the field as it is."
        )
    for value in values:
        try:
            check_ranges(algorithm.name(), replace(algorithm, **{name: value}))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"space: {error}") from None
    return found


def _word(value: Any) -> Any:
    """Return a value that Optuna can store: other than plain values as JSON."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return value if plain else json.dumps(value)
