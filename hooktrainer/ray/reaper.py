"""Ends what is left of a Ray cluster when the process that began it is gone.

Run as a program, with a variable's name and value. It waits until its standard input closes, which
the death of the process at the other end brings about, and then kills every process that has the
variable in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

_ROUNDS = 6
_PAUSE = 0.5


def marked(mark: bytes) -> list[int]:
    """Ids of the processes with ``mark`` in their environment, but this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def main() -> None:
    """Wait, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark = f"{sys.argv[1]}={sys.argv[2]}".encode()
    sys.stdin.buffer.read()
    for _ in range(_ROUNDS):
        left = marked(mark)
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
