"""The storage of a sweep: a journal file, or any other of Optuna's."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.text_file import open_to_lock
from ..base.untrusted import one_line
from ..base.words import printable
from ..errors import ConfigError, MissingPackageError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

_BUSY = 120  # seconds that SQLite waits for a lock


def import_optuna() -> Any:
    """Import Optuna and silence its log, or raise MissingPackageError."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "a sweep needs Optuna, which is not installed: pip install 'hooktrainer[sweep]'",
            name=error.name,
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(spec: str | None, run_dir: Path) -> BaseStorage:
    """Open the storage of a sweep.

    Args:
        spec: A URL, such as ``sqlite:///study.db`` or ``redis://...``, or the path of a journal
            file; by default ``<run_dir>/study.journal``.
        run_dir: The sweep's directory.

    Raises:
        ConfigError: If it cannot be opened.
    """
    optuna = import_optuna()
    where = spec or str(run_dir / "study.journal")
    if "://" not in where:
        return _open_journal(Path(where), run_dir)
    try:
        if where.startswith("redis"):
            backend = optuna.storages.journal.JournalRedisBackend(where)
            return optuna.storages.JournalStorage(_without_snapshots(backend))
        busy = {"connect_args": {"timeout": _BUSY}} if where.startswith("sqlite") else {}
        return optuna.storages.RDBStorage(where, engine_kwargs=busy)
    except Exception as error:  # of any driver
        why = " ".join(str(error).split())
        raise ConfigError(
            f"storage={where!r} cannot be opened: {type(error).__name__}: {why:.300}. Give a file, "
            "sqlite:///FILE, or the URL of a server that Optuna has a driver for."
        ) from error


def _open_journal(path: Path, run_dir: Path) -> BaseStorage:
    """Open a journal file and read it whole; raise ConfigError if it is damaged or no journal."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"storage={str(path)!r} is no file: name a file, or one that is to be.")
    path.parent.mkdir(parents=True, exist_ok=True)
    storages = import_optuna().storages
    try:
        backend = storages.journal.JournalFileBackend(str(path), lock_obj=_Lock(path))
        storage: BaseStorage = storages.JournalStorage(backend)
    except OSError:
        raise
    except Exception as error:  # whatever a line makes Optuna raise
        why = one_line(f"{type(error).__name__}: {error}", 200)
        raise ConfigError(
            f"the journal {printable(path)} is damaged, or no journal ({why}). Move it away, and "
            "give the command again: it takes up the trials whose runs are in "
            f"{printable(run_dir)}."
        ) from None
    return storage


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Hold a lock on a file in the block; the file is created if it is missing."""
    fd = open_to_lock(file)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class _Lock:
    """Lock of a journal for Optuna; the system releases it when the process that writes ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = ExitStack()

    def acquire(self) -> bool:
        self._held.enter_context(in_turn(self._path.with_name(f"{self._path.name}.lock")))
        _cut_half_line(self._path)
        return True

    def release(self) -> None:
        self._held.close()


def _cut_half_line(path: Path) -> None:
    """Remove an incomplete last line, as of a full disk: the next line would be added to it."""
    with path.open("rb+") as file:
        if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) and file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def _without_snapshots(backend: Any) -> Any:
    """Return the journal without snapshots, which are pickles and could run code."""
    from optuna.storages.journal import BaseJournalBackend

    class Logs(BaseJournalBackend):
        """The entries only."""

        def read_logs(self, log_number_from: int) -> Any:
            return backend.read_logs(log_number_from)

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            backend.append_logs(logs)

    return Logs()
