"""The `hooktrainer` command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the `hooktrainer` command and return its exit code; ``args`` default to the process's."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_ours := is_main and before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an import may lose what a handler raises
    try:
        from .commands import run
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
    return run(args)
