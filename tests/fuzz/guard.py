"""What a case must not do: execute, look elsewhere, take much memory, show the process's memory."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import sysconfig
from pathlib import Path
from typing import Any

ADDRESS_BOUND = 2 << 30
"""Bytes of addresses that a process may ask for beside those that it begins with."""

_PATTERN = 0xA5
_LEAK = (bytes([_PATTERN]) * 24, bytes([_PATTERN ^ 0xFF]) * 24)
_RUN = (
    "exec",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "os.startfile",
    "pty.spawn",
    "subprocess.Popen",
    "ctypes.dlopen",
    "code.__new__",
    "function.__new__",
    "pickle.find_class",
    "webbrowser.open",
)
_CHANGE = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
    *("os.chown", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
)
_LIBRARIES = tuple(
    {
        os.path.realpath(path)
        for path in (*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *sys.path)
        if path and path != "/"
    }
    | {"/etc/localtime", "/usr/share/zoneinfo"}
)
_SYSTEM = ("/proc/meminfo", "/proc/self/statm", "/dev/null")


def poisoned_environment() -> dict[str, str]:
    """An environment in which memory that was never written shows, whoever reads it."""
    quiet = {"RL_LOGGING_LEVEL": "WARNING", "OMP_NUM_THREADS": "1"}
    return {**os.environ, "MALLOC_PERTURB_": str(_PATTERN), **quiet}


def leaks(data: bytes) -> bool:
    """Whether bytes hold memory that was never written."""
    return any(pattern in data for pattern in _LEAK)


class Guard:
    """Watches over one process, from which it cannot be taken away again.

    Args:
        memory: Bytes that it may take.

    Attributes:
        place: The directory of the case; nothing else may be opened.
        seen: What was done that must not be.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self.place: str | None = None
        self.seen: list[str] = []
        self._base = _peak()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_BOUND,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(self._audit)

    def took_too_much(self) -> bool:
        """Whether more memory was taken than may be, ever."""
        return _peak() - self._base > self._memory

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.place is None:
            return
        if event in _RUN or event.startswith(("socket.", "ftplib.", "urllib.", "http.")):
            self._note(f"{event} {args!r:.120}")
        elif event == "compile" and args[1] != "<unknown>":  # which is ast.literal_eval
            self._note(f"{event} {args[1]!r:.120}")
        elif event == "import" and args[0] not in sys.modules:
            self._note(f"import {args[0]}")
        elif event == "open":
            self._check_path(event, args[0])
        elif event in _CHANGE:
            for path in args[:2]:
                self._check_path(event, path)

    def _check_path(self, event: str, path: Any) -> None:
        if isinstance(path, bytes | os.PathLike):
            path = os.fsdecode(path)
        if not isinstance(path, str) or self.place is None or (event == "open" and path in _SYSTEM):
            return
        place, self.place = self.place, None  # what is asked here is no part of the case
        try:
            real = os.path.realpath(path)
            inside = real == place or real.startswith(f"{place}/")
            if not inside and (event != "open" or not real.startswith(_LIBRARIES)):
                self._note(f"{event} {path!r:.120}")
        except ValueError:  # no path at all
            pass
        finally:
            self.place = place

    def _note(self, what: str) -> None:
        with contextlib.suppress(UnicodeError):
            self.seen.append(what)


def _peak() -> int:
    """The most memory that the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
