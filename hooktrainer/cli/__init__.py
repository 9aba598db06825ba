"""The `hooktrainer` command."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the `hooktrainer` command and return its exit code; ``args`` default to the process's."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; the next file that is opened takes its number
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # bars and curves that its encoding lacks
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
