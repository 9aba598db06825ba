"""`info_keys`: numbers that environments put in their `info`, as entries of the batch.

An entry is float32 whatever the environment gives, and NaN in the steps in which it gives nothing:
a batch's layout then does not depend on when an episode first ends, and no mean counts a missing
value as zero. At an episode's end every key has to be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..base.words import did_you_mean, listed
from ..errors import ConfigError
from .buffers import Row
from .spaces import Array

InfoKeys = tuple[str, ...]

_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_TAKEN: Final = {
    *("action", "action_mask", "collector", "done", "episode_reward", "is_init", "next", "reward"),
    *("step_count", "terminated", "truncated"),
    *("episodes", "frames", "length", "return", "return_std"),  # metrics of episodes
}


def check_info_keys(keys: Any, observation: Iterable[str] = ()) -> InfoKeys:
    """Return the keys; raises `ConfigError` if a batch or the metrics use one already."""
    if isinstance(keys, str):
        raise ConfigError(f"info_keys={keys!r} is one string: give a list, such as [{keys!r}].")
    found, taken = tuple(keys), {*observation, *_TAKEN}
    for key in found:
        if not isinstance(key, str) or not key or found.count(key) > 1:
            raise ConfigError(f"info_keys={list(found)}: give strings, each once, not {key!r}.")
        if key in taken:
            raise ConfigError(
                f"info_keys: {key!r} is an entry of the batch, the observation or the metrics "
                "already. Let a wrapper of the environment call it otherwise in its info."
            )
    return found


def write_infos(
    keys: InfoKeys, row: Row, infos: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> None:
    """Write the infos of scalar environments; ``row`` has the flags of ended episodes."""
    ended = row.terminated | row.truncated
    for key, column in zip(keys, row.entries, strict=True):
        for i, info in enumerate(infos):
            if key not in info and ended[i]:
                raise missing_key(key, info, names[i])
            column[i] = number(key, info.get(key, np.nan), names[i])


def write_vector_info(
    keys: InfoKeys, row: Row, info: Mapping[str, Any], name: str, final: Mapping[str, Any] | None
) -> None:
    """Write the infos of a vector environment, in Gymnasium's form of one array for each key."""
    ended = row.terminated | row.truncated
    for key, column in zip(keys, row.entries, strict=True):
        values, given = _column(key, info, len(column), name)
        if final is not None:
            last, given = _column(key, final, len(column), name)
            values[ended] = last[ended]
        if not given[ended].all():
            raise missing_key(key, info if final is None else final, name)
        column[...] = values


def number(key: str, value: Any, name: str) -> Any:
    """A number, which may be an array of one."""
    if isinstance(value, _NUMBERS):
        return value
    array = np.asarray(None if isinstance(value, dict) else value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        shape = f"of shape {list(array.shape)} " if array.ndim else ""
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} is {value!r:.60}, {shape}and no number, bool or "
            "array of one. Let a wrapper put a number there, or leave the key out."
        )
    return array.reshape(())[()]


def missing_key(key: str, info: Mapping[str, Any], name: str) -> ConfigError:
    """The error of a key that is missing where an episode ended."""
    held = sorted(k for k in info if not (k[:1] == "_" and k[1:] in info))
    return ConfigError(
        f"info_keys: there is no {key!r} in the info at an episode's end of {name}, which has "
        f"{listed(map(repr, held)) or 'nothing'}.{did_you_mean(key, held)} Name one of these, or "
        "let the environment give it, at every episode's end."
    )


def _column(key: str, info: Mapping[str, Any], count: int, name: str) -> tuple[Array, Array]:
    """The numbers of one key, float32 ``[count]``, NaN where missing; and a mask of those given."""
    found = np.full(count, np.nan, np.float32)
    if key not in info:
        return found, np.zeros(count, bool)
    values, given = np.asarray(info[key]), np.asarray(info.get(f"_{key}", np.ones(count)), bool)
    if not values.ndim or len(values) != count:
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} is {info[key]!r:.60}: a vector environment has "
            f"to give an array of one number for each of its {count}."
        )
    if values.dtype.kind in "biuf" and values.size == count:
        found[given] = values.reshape(count)[given]
    else:
        for i in np.flatnonzero(given):
            found[i] = number(key, values[i], name)
    return found, given
