"""Where a result comes from: the command, the versions of libraries, the commit."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from .ownership import sign_command

_PACKAGES: Final = (
    "torch",
    "tensordict",
    "torchrl",
    "gymnasium",
    "numpy",
    "hooktrainer",
)


def this_process() -> dict[str, Any]:
    """The process that trains: its command, signed by who runs it, its libraries, its commit."""
    command = _invocation()
    return {**command, "signature": sign_command(command), **origin()}


def origin() -> dict[str, Any]:
    """What a result depends on beside its options: `library_versions` and `git_state`."""
    return {"versions": dict(library_versions()), **git_state()}


@functools.cache
def library_versions() -> Mapping[str, str | None]:
    """Versions of Python and of the libraries that a result depends on."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    if versions["hooktrainer"] is None:  # run from its source tree
        from . import __version__

        versions["hooktrainer"] = __version__
    return versions


def git_state() -> dict[str, Any]:
    """Commit of the repository that holds the script, and whether tracked files differ from it.

    Both are `None` where there is no git, no repository or no commit.
    """
    script = Path(sys.argv[0] or ".").absolute().parent
    where = script if script.is_dir() else Path.cwd()
    commit = _git("rev-parse", "HEAD", where=where)
    changes = _git("status", "--porcelain", "--untracked-files=no", where=where)
    return {
        "git_commit": commit,
        "git_dirty": None if commit is None or changes is None else bool(changes),
    }


def _invocation() -> dict[str, Any]:
    """What was run, for people (`command`) and for running it again (the rest).

    `script` is `None` where there is none, as in a notebook; `module` is what followed `-m`, or
    `None`.
    """
    script = Path(sys.argv[0] or ".").absolute()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "script": str(script) if script.is_file() else None,
        "module": None if spec is None else spec.name,
        "argv": sys.argv[1:],
        "cwd": str(Path.cwd()),
    }


def _git(*command: str, where: Path) -> str | None:
    try:
        done = subprocess.run(
            ["git", *command],
            cwd=where,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
