"""Numbers as people say them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A time span for people, such as ``42 s``, ``3 min 20 s`` or ``5 h 12 min``."""
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
    """How many there are, such as ``1 checkpoint``, ``2 checkpoints``.

    Args:
        count: How many.
        noun: What one of them is called.
        several: What several are called; by default with an ``s``.
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
