"""Formatting and parsing of numbers, lists and untrusted text."""

from __future__ import annotations

import difflib
import functools
import logging
import re
import shlex
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

log = logging.getLogger(__name__)

_LONGEST = 3e10
"""A thousand years, in seconds."""


def snake_case(name: str) -> str:
    """Convert ``EveryTenth`` to ``every_tenth``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def duration(seconds: float) -> str:
    """Format a time span, such as ``42 s``, ``3 min 20 s`` or ``5 h 12 min``."""
    if not seconds < _LONGEST:
        return f"{seconds:.3g} s"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Format a count with its noun, such as ``1 checkpoint``, ``2 checkpoints``."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(things: Iterable[object], most: int = 8) -> str:
    """Join items with commas; after ``most`` of them, give the number of the others.

    Examples:
        >>> listed(range(1000), most=3)
        '0, 1, 2 and 997 more'
    """
    words = [str(thing) for thing in things]
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most:,} more"


def ranges(numbers: Iterable[int], most: int = 8) -> str:
    """Format ascending integers, with ranges for neighbours.

    Examples:
        >>> ranges([0, 1, 2, 3, 7, 9, 10])
        '0-3, 7, 9-10'
    """
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return listed((f"{a}-{b}" if b > a else str(a) for a, b in spans), most)


def did_you_mean(name: str, known: Iterable[str], most: int = 2) -> str:
    """Return a sentence, with a leading space, that names the nearest known names, if any.

    Examples:
        >>> did_you_mean("tensorbord", ["csv", "tensorboard"])
        ' Did you mean tensorboard?'
    """
    near = nearest(name, known, most)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def nearest(name: str, known: Iterable[str], most: int = 2) -> list[str]:
    """Return the nearest known names, the best first."""
    word, words = _bare(name), {_bare(other): other for other in known}
    begun = [other for other in words if other.startswith(word) and len(word) > 1]
    near = begun[:most] or difflib.get_close_matches(word, words, n=most, cutoff=0.6)
    return [words[other] for other in near]


def _bare(name: str) -> str:
    return name.lower().lstrip("-").replace("_", "-")


def whole_number(text: str) -> int:
    """Parse an integer written as ``50000``, ``50_000``, ``5e4`` or ``5.0e4``, exactly."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    if not value.is_finite() or value.adjusted() >= 20 or value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of at most 20 digits")
    return int(value)


def which(text: str) -> str | None:
    """Parse a checkpoint choice: ``latest``, ``best``, or frames as plain digits; else ``None``."""
    if text in ("latest", "best"):
        return text
    try:
        frames = whole_number(text)
    except ValueError:
        return None
    return str(frames) if frames >= 0 else None


def printable(text: object, keep: str = "") -> str:
    """Escape control characters and line breaks of untrusted text, except those in ``keep``."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def shell_word(text: object) -> str:
    """Quote a text as one word of a shell, with control characters escaped.

    Examples:
        >>> shell_word("runs/a"), shell_word("my runs")
        ('runs/a', "'my runs'")
    """
    return shlex.quote(printable(text))


HIDDEN = ":***@"
"""Stands for the password in an address."""


def without_password(text: str) -> str:
    """Hide the passwords in addresses.

    Examples:
        >>> without_password("sftp://me:secret@host/runs")
        'sftp://me:***@host/runs'
    """
    return re.sub(r"(://[^/\s:]*):[^/\s]*@", rf"\1{HIDDEN}", text)


def encodable(text: str) -> str:
    r"""Escape NUL and lone surrogates, which stand for undecodable bytes of file names.

    Examples:
        >>> encodable("caf\udce9")
        'caf\\udce9'
    """
    return "".join(
        c.encode("unicode_escape").decode() if c == "\0" or "\ud800" <= c <= "\udfff" else c
        for c in text
    )


@functools.lru_cache(4096)  # one warning a name
def as_name(name: str) -> str:
    """Escape the name of a metric for files and servers, with a warning if it changes."""
    if not isinstance(name, str):
        raise ValueError(f"the name of a metric is a text, not {name!r}")
    valid = printable(name) or "unnamed"
    if valid != name:
        log.warning("The metric %a has a name that is not valid text: logged as %r.", name, valid)
    return valid
