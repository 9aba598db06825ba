"""Kills the remaining processes of a Ray cluster when the process that started it has ended.

Run as a program, with the name of the cluster's session. Its standard input closes when the parent
dies; it then kills every process that has files of the session open. The environment cannot
identify them, because Ray's processes overwrite it with their titles.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

_ROUNDS = 8
_PAUSE = 0.5


def processes_of(session: str) -> list[int]:
    """Ids of the processes of Ray's that have files of a session open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if b"ray" in (entry / "cmdline").read_bytes() and any(
                    session in os.readlink(file) for file in (entry / "fd").iterdir()
                ):
                    found.append(int(entry.name))
    return found


def main() -> None:
    """Wait, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    session, spared = sys.argv[1], {os.getpid(), os.getppid()}
    sys.stdin.buffer.read()
    for _ in range(_ROUNDS):
        left = set(processes_of(session)) - spared
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
