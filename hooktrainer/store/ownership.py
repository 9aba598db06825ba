"""Tells what this user's programs wrote on this machine from what came from elsewhere.

Whatever can be copied can be forged: the owner of a file, a host's name, a process's number. So
there is a key that never leaves the machine, and what is signed with it was written here. A run
signs the command that began it, so that ``hooktrainer resume`` runs no command that somebody else
has put into a run's directory.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_BYTES: Final = 32
_COMMAND: Final = ("script", "module", "argv", "cwd")


def sign_command(state: Mapping[str, Any]) -> str | None:
    """Return a signature of the command that begins a run; ``None`` if there can be no key.

    Args:
        state: What ``run.json`` says of it: ``script``, ``module``, ``argv`` and ``cwd``.
    """
    key = _key(create=True)
    return None if key is None else _signature(key, state)


def is_own_command(state: Mapping[str, Any]) -> bool:
    """Whether the command in a ``run.json`` was written by this user's programs on this machine.

    Args:
        state: The content of ``run.json``.
    """
    key, given = _key(create=False), state.get("signature")
    if key is None or not isinstance(given, str) or not given.isascii():
        return False
    return hmac.compare_digest(_signature(key, state), given)


def key_file() -> Path:
    """Where the key is kept: ``hooktrainer/key`` in the user's directory for the state of programs.

    Raises:
        RuntimeError: If the user has no home.
    """
    place = os.environ.get("XDG_STATE_HOME", "")
    root = Path(place) if os.path.isabs(place) else Path.home() / ".local" / "state"
    return root / "hooktrainer" / "key"


def _signature(key: bytes, state: Mapping[str, Any]) -> str:
    command = json.dumps(["command", *(state.get(name) for name in _COMMAND)])
    return hmac.new(key, command.encode(), "sha256").hexdigest()


def _key(*, create: bool) -> bytes | None:
    with suppress(OSError, RuntimeError):
        path = key_file()
        if create and not path.exists():
            _make(path)
        return _read(path)
    return None


def _read(path: Path) -> bytes | None:
    """The key, if nobody else can have read or written it."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        others = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        key = file.read(_BYTES + 1)
    return key if found.st_uid == os.getuid() and not others and len(key) == _BYTES else None


def _make(path: Path) -> None:
    """Write a new key, complete or not at all; of two processes, one's is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(fd)
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
