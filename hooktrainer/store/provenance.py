"""Where a result comes from: the command, the versions of libraries, the user's project."""

from __future__ import annotations

import functools
import hmac
import json
import os
import platform
import re
import secrets
import shlex
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Final

from ..base.version import __version__
from ..base.words import without_password

_PACKAGES: Final = ("torch", "tensordict", "torchrl", "gymnasium", "numpy", "hooktrainer")


def this_process() -> dict[str, Any]:
    """Describe this process: its command, signed by its user, its libraries, its project."""
    script, module, is_command = program()
    argv = [without_password(word) for word in sys.argv[1:]]
    typed = [script.name, *argv] if script and is_command else sys.orig_argv
    command = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": without_password(shlex.join(typed)),  # for people; the rest: to run it again
        "script": None if script is None else str(script),
        "module": module,
        "argv": argv,
        "cwd": str(Path.cwd()),
    }
    return {**command, "signature": sign_command(command), **origin()}


@functools.cache
def library_versions() -> Mapping[str, str | None]:
    """Return the versions of Python and of the libraries that a result depends on."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # hooktrainer: run from its source tree
            versions[package] = __version__ if package == "hooktrainer" else None
    return versions


def origin() -> dict[str, Any]:
    """Return the origin of a result besides its options: versions, and the user's project.

    ``git_commit`` is the project's commit, ``git_dirty`` whether tracked files differ from it. The
    project is the repository that holds the script or, where the user has none (``hooktrainer
    train``, ``python -m``, a notebook), the current directory. Both are `None` where there is no
    git, no repository or no commit.
    """
    facts: dict[str, Any] = {"versions": dict(library_versions())}
    (script, module, is_command), here = program(), Path(__file__).absolute().parent
    is_own = script and not module and not is_command and here not in script.parents
    where = script.parent if script and is_own else Path.cwd()
    names = ("HEAD", "--git-path", "objects", "--git-path", "index", "--show-toplevel")
    found = (git("rev-parse", *names, where=where) or "").split("\n")
    if len(found) != 4:
        return {**facts, "git_commit": None, "git_dirty": None}
    commit, (objects, index, top) = found[0], (where / path for path in found[1:])
    # A repository's configuration can name programs that ``git status`` runs (``core.fsmonitor``,
    # filters). So git works in a repository of our own, on objects, index and files of the user's.
    with TemporaryDirectory() as own:
        for name in ("refs", "objects"):
            (Path(own) / name).mkdir()
        (Path(own) / "HEAD").write_text(f"{commit}\n")
        changes = git(
            *("-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no"),
            "--ignore-submodules=all",
            where=top,
            GIT_DIR=own,
            GIT_WORK_TREE=str(top),
            GIT_INDEX_FILE=str(index),
            GIT_OBJECT_DIRECTORY=str(objects),
        )
    dirty = None if changes is None else bool(changes)
    return {**facts, "git_commit": commit, "git_dirty": dirty}


def program() -> tuple[Path | None, str | None, bool]:
    """Return the script, the module after ``-m``, and whether it is an installed command."""
    script = Path(sys.argv[0] or ".").absolute()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_command = script.parent == Path(sysconfig.get_path("scripts")).absolute()
    return script if script.is_file() else None, None if spec is None else spec.name, is_command


def git(*command: str, where: Path, **environ: str) -> str | None:
    """Return the output of a git command in a directory; ``None`` if it fails or git is missing."""
    try:
        done = subprocess.run(
            ["git", *command],
            cwd=where,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip("\n")


# -- The identity of a run: one id, made when it begins, that everything it leaves carries.

RUN_FILE: Final = "run.json"
"""Name of the file, in the directory of a run, with its status."""
_ID: Final = re.compile(r"[0-9a-f]{16}")


def new_run_id() -> str:
    """Return a unique id: 16 hexadecimal digits, drawn from the operating system."""
    return secrets.token_hex(8)


def id_in(state: Mapping[str, Any]) -> str | None:
    """Return the id in the content of a `run.json`; ``None`` if there is none."""
    found = state.get("run_id")
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


def parent_in(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return where the run of a `run.json` branched off: ``run_id``, ``path`` and ``frames``."""
    match state.get("forked_from"):
        case {"run_id": str(run_id), "path": str(path), "frames": int(frames)}:
            if _ID.fullmatch(run_id):
                return {"run_id": run_id, "path": path, "frames": frames}
    return None


# -- A signature that only this user's programs on this machine can write.

_BYTES: Final = 32
_COMMAND: Final = ("script", "module", "argv", "cwd")


def sign_command(state: Mapping[str, Any], *, create: bool = True) -> str | None:
    """Return a signature of the command that begins a run; ``None`` if there is no key.

    Args:
        state: The command's entries in ``run.json``: ``script``, ``module``, ``argv``, ``cwd``.
        create: Make a key if there is none.
    """
    with suppress(OSError, RuntimeError):
        path = key_file()
        if create and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent) as new:  # its mode is 0600
                new.write(secrets.token_bytes(_BYTES))
                new.flush()
                os.fsync(new.fileno())
                with suppress(FileExistsError):  # of two processes, one's is kept
                    os.link(new.name, path)
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            others = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            key = file.read(_BYTES + 1)
        # The key counts only if no other user could have read or written it.
        if found.st_uid == os.getuid() and not others and len(key) == _BYTES:
            command = json.dumps(["command", *(state.get(name) for name in _COMMAND)])
            return hmac.new(key, command.encode(), "sha256").hexdigest()
    return None


def is_own_command(state: Mapping[str, Any]) -> bool:
    """Return whether this user's programs on this machine wrote the command in a ``run.json``.

    Args:
        state: The content of ``run.json``.
    """
    signed, given = sign_command(state, create=False), state.get("signature")
    if signed is None or not isinstance(given, str) or not given.isascii():
        return False
    return hmac.compare_digest(signed, given)


def key_file() -> Path:
    """Return the file of the key: ``hooktrainer/key`` in the user's state directory.

    Raises:
        RuntimeError: If the user has no home.
    """
    place = os.environ.get("XDG_STATE_HOME", "")
    root = Path(place) if os.path.isabs(place) else Path.home() / ".local" / "state"
    return root / "hooktrainer" / "key"
