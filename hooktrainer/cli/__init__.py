"""The `hooktrainer` command."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the `hooktrainer` command and return its exit code; ``args`` default to the process's."""
    from .commands import run

    return run(args)
