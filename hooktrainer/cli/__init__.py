"""The `hooktrainer` command."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.endings import interruptible

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: Its words; by default those of the process.

    Returns:
        The exit code.

    Raises:
        SystemExit: With 0 after ``--help``, 2 after words that no command understands.
    """
    with interruptible(is_all=args is None):
        from .commands import run

        return run(args)
