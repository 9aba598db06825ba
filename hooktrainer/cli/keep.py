"""Retention policies from the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_

from ..errors import ConfigError
from ..store import Best, EveryFrames, EveryHours, Last, MaxBytes, Retention

_BEST = re.compile(r"(\d+):(.+?)(?::(max|min))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)
_EXPONENT = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_policy(
    *,
    latest: int | None = None,
    best: Sequence[str] = (),
    every_frames: int | None = None,
    every_hours: float | None = None,
    max_bytes: str | None = None,
) -> Retention:
    """Return the union of the policies that were asked for.

    Args:
        latest: As for `Last`.
        best: One ``N:METRIC`` or ``N:METRIC:min`` for each `Best`.
        every_frames: As for `EveryFrames`.
        every_hours: As for `EveryHours`.
        max_bytes: A size such as ``10GB`` or ``500MiB``, for `MaxBytes`.

    Raises:
        ConfigError: If there is none, or one does not make sense.
    """
    policies: list[Retention] = [parse_best(text) for text in best]
    if latest is not None:
        policies.append(Last(latest))
    if every_frames is not None:
        policies.append(EveryFrames(every_frames))
    if every_hours is not None:
        policies.append(EveryHours(every_hours))
    if max_bytes is not None:
        policies.append(MaxBytes(parse_size(max_bytes)))
    if not policies:
        raise ConfigError(
            "say what to keep, with one or more of --keep-last N, --keep-best N:METRIC, "
            "--every-frames N, --every-hours N, --max-bytes SIZE."
        )
    return reduce(or_, policies)


def parse_best(text: str) -> Best:
    """Return the policy that ``N:METRIC`` or ``N:METRIC:max`` or ``N:METRIC:min`` means.

    Raises:
        ConfigError: If it is none of these.
    """
    match = _BEST.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--keep-best {text}: write N:METRIC, or N:METRIC:min where less is better, such as "
            "3:eval/return."
        )
    return Best(int(match[1]), match[2], "min" if match[3] == "min" else "max")


def parse_size(text: str) -> int:
    """Return a number of bytes: ``10GB`` has 10 * 1000**3, ``10GiB`` has 10 * 1024**3.

    Raises:
        ConfigError: If it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--max-bytes {text}: write a size such as 500MB, 10GB or 10GiB.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _EXPONENT[match[2].lower()])
