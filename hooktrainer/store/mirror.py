"""`Mirror`: copies the checkpoints of a run to another place, in a thread; `fetch` copies one back.

A mirror is a run's directory in any file system of fsspec: ``config.yaml``, ``run.json``,
``metrics.csv`` and ``checkpoints/``. The manifest of a checkpoint is written last. Whatever is
written is read back, and compared with the hashes in the manifest.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any, Final

import xxhash

from ..base import fs
from ..base.untrusted import MAX_STRUCTURE, one_line
from ..base.words import HIDDEN, listed, shell_word, without_password
from ..errors import CheckpointError, ConfigError, DamagedCheckpointError, TakenError
from . import lock
from .lookup import SUBDIRECTORY
from .retention import Best, Last
from .run_dir import RunDir
from .stored import MANIFEST, NAME, Checkpoint, FileRecord, Manifest, move_away, surplus

_log = logging.getLogger(__name__)
_BLOCK: Final = 1 << 23
_LONGEST_PAUSE: Final = 60.0  # seconds between two attempts
_FIRST_ANSWER: Final = 10.0  # seconds


def is_url(place: str | None) -> bool:
    """Return whether a text is an address such as ``s3://bucket/run``, not a path."""
    return place is not None and "://" in place


class Remote:
    """A directory in any file system of fsspec; every write is read back.

    Args:
        url: Its address, or a path.

    Attributes:
        name: The address without a password.

    Raises:
        ConfigError: If there is no such file system, or the address has lost its password.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.name, self._url, self._fs = without_password(url), url, None
        if HIDDEN in url:
            raise ConfigError(
                f"{url}: passwords are not recorded. Pass the address again with its password, or "
                "leave it out and put the password in the configuration of fsspec."
            )
        if not url.rpartition("://")[2].strip("/"):
            raise ConfigError(f"{self.name!r} names no directory: give such as s3://bucket/run.")
        try:
            fsspec.get_filesystem_class(fsspec.core.split_protocol(url.split("::")[-1])[0])
        except (ValueError, ImportError) as error:
            raise ConfigError(
                f"{self.name} cannot be used ({error}): give an address that fsspec knows, such as "
                "file:///backup/run or s3://bucket/run, and install the package that it needs."
            ) from None

    @property
    def fs(self) -> Any:
        """The file system; connects at the first use."""
        if self._fs is None:
            from fsspec.core import url_to_fs

            self._fs, self._root = url_to_fs(self._url, skip_instance_cache=True)
        return self._fs

    def reconnect(self) -> None:
        """Connect again at the next use."""
        self._fs = None

    def is_directory(self, path: Path) -> bool:
        """Whether it is a directory of this machine; does not connect."""
        from fsspec.core import split_protocol

        protocol, place = split_protocol(self._url)
        is_local = protocol in (None, "file", "local")
        return is_local and os.path.realpath(place) == os.path.realpath(path)

    def place(self, name: str) -> tuple[Any, str]:
        """The file system, and the place in it of a file of the run."""
        return self.fs, f"{self._root.rstrip('/')}/{name}"

    def names(self) -> list[str]:
        """Return the names of the checkpoints that are listed there, complete or not."""
        files, path = self.place(SUBDIRECTORY)
        files.invalidate_cache()
        try:
            found = [PurePosixPath(one).name for one in files.ls(path, detail=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if NAME.fullmatch(name))

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Return a checkpoint, of which only the manifest is read; ``None`` if it has none yet."""
        try:
            data = self.read(f"{SUBDIRECTORY}/{name}/{MANIFEST}")
        except FileNotFoundError:
            return None
        return Checkpoint(Path(name), Manifest.decode(data))

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        files, path = self.place(name)
        with files.open(path, "rb") as file:
            data: bytes = file.read(MAX_STRUCTURE + 1)
        if len(data) > MAX_STRUCTURE:
            raise DamagedCheckpointError(f"{self.name}/{name} has too many bytes.")
        return data

    def matches(
        self, name: str, record: FileRecord, write: Callable[[bytes], Any] = lambda block: None
    ) -> bool:
        """Read a file, pass its blocks to ``write``, and return whether it is the recorded one."""
        files, path = self.place(name)
        digest, left = xxhash.xxh3_128(), record.size + 1
        try:
            with files.open(path, "rb") as file:
                while left > 0 and (block := file.read(min(_BLOCK, left))):
                    digest.update(block)
                    write(block)
                    left -= len(block)
        except FileNotFoundError:
            return False
        return left == 1 and digest.hexdigest() == record.xxh3_128

    def put(self, source: Path, name: str, record: FileRecord) -> None:
        """Copy a file there. Raise OSError if what is there then is not the recorded file."""
        files, path = self.place(name)
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.put_file(str(source), path)
        self._check(name, record)

    def publish(self, name: str, data: bytes) -> None:
        """Write a small file, which appears under its name complete where renaming is atomic."""
        record = FileRecord(len(data), xxhash.xxh3_128_hexdigest(data))
        folder, _, last = name.rpartition("/")
        temporary = f"{folder}/.tmp-{last}".lstrip("/")
        files, path = self.place(name)
        _, new = self.place(temporary)
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.pipe_file(new, data)
        self._check(temporary, record)
        files.mv(new, path)
        self._check(name, record)

    def _check(self, name: str, record: FileRecord) -> None:
        if not self.matches(name, record):
            raise OSError(f"{name} is not there as it was written")

    def remove(self, name: str) -> None:
        """Delete a checkpoint, its manifest first."""
        files, path = self.place(f"{SUBDIRECTORY}/{name}")
        with suppress(FileNotFoundError):
            files.rm_file(f"{path}/{MANIFEST}")
        with suppress(FileNotFoundError):
            files.rm(path, recursive=True)


class Mirror:
    """Copies every checkpoint of a run to another place; an argument of `CheckpointManager`.

    A thread copies the newest checkpoint that is committed; nothing else waits for it, and
    checkpoints that are committed meanwhile are skipped. A failure is reported once and tried again
    after 1, 2, 4, … seconds, at most 60. It never ends the training.

    Args:
        url: The directory of the run there, in any file system of fsspec: ``file:///…``,
            ``s3://…``, ``sftp://…``. One run has it for itself.
        keep: How many of the latest checkpoints it keeps, in addition to the best one.
        pause: Seconds from a failure to the next attempt; doubled at each.
        closing: Seconds that `close` waits for the last checkpoint.
        patience: Seconds after which a place that does not answer is reported.

    Attributes:
        frames: Frames of the last checkpoint that is there and was read back; ``None`` before.
        deadline: When, by `time.monotonic`, `close` does not wait any more.

    Raises:
        ConfigError: If there is no such file system.
    """

    def __init__(
        self,
        url: str,
        *,
        keep: int = 3,
        pause: float = 1.0,
        closing: float = 120.0,
        patience: float = 300.0,
    ) -> None:
        self.remote = Remote(url)
        self.frames: int | None = None
        self.deadline = math.inf
        self._keep, self._pause = Last(keep), pause
        self._closing, self._patience = closing, patience
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._woken = threading.Event()  # ends a pause
        self._listed = threading.Event()
        self._pending: Checkpoint | None = None
        self._is_opening, self._is_closing, self._is_over = True, False, False
        self._taken: TakenError | None = None
        self._failure: str | None = None  # of a streak that was reported
        self._since: float | None = None  # of the attempt that is under way
        self._known: dict[str, Checkpoint] = {}
        self._unfinished: list[str] = []
        self._done: set[str] = set()  # files of the checkpoint that is being copied

    def open(
        self, run: RunDir, run_id: str, best: Best | None, latest: Checkpoint | None = None
    ) -> None:
        """Begin to mirror a run; the manager calls it. Waits at most 10 seconds for an answer.

        Args:
            run: The run's directory.
            run_id: Its id.
            best: Selects the best checkpoint.
            latest: A checkpoint to copy, unless a later one is there.

        Raises:
            TakenError: If another run is there, or this one itself.
        """
        if self.remote.is_directory(run.path):
            raise TakenError(f"{self.remote.name} is the run's own directory: name another mirror.")
        self._run, self._run_id, self._best, self._pending = run, run_id, best, latest
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()
        self._listed.wait(_FIRST_ANSWER)
        self._is_opening = False
        if self._taken is not None:
            raise self._taken

    def push(self, checkpoint: Checkpoint) -> None:
        """Have a checkpoint copied, in place of one that waits; returns at once."""
        with self._changed:
            self._pending = checkpoint
            self._changed.notify_all()
        since = self._since
        if since is not None and monotonic() - since > self._patience:
            self._report(f"no answer for {self._patience:g} seconds")

    def close(self) -> None:
        """Wait for the last checkpoint until `deadline`; report if it is not there."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        until = min(monotonic() + self._closing, self.deadline)
        with self._changed:
            self._woken.set()
            self._changed.wait_for(
                lambda: self._pending is None or self._is_over, max(0.0, until - monotonic())
            )
            late = self._pending
        if self._run.run_file.exists():
            with suppress(OSError, ConfigError):
                self._run.update(mirrored_frames=self.frames)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        thread.join(max(0.0, until - monotonic()))
        self._is_over = True
        if late is not None:
            there = "no checkpoint" if self.frames is None else f"the one at {self.frames:,} frames"
            _log.warning(
                "The mirror %s has %s, not yet the last one, at %s frames (%s). To copy it later: "
                "hooktrainer resume %s",
                self.remote.name,
                there,
                f"{late.frames:,}",
                self._failure or "the time to close was over",
                shell_word(self._run.path),
            )

    # -- The thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        pause = self._pause
        self._attempt(self._list_first)
        self._listed.set()
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._is_closing)
                checkpoint = self._pending
            if checkpoint is None and self.frames is None:
                return
            task = partial(self._copy, checkpoint) if checkpoint else self._put_run_files
            if self._attempt(task):
                if checkpoint is None:
                    return
                with self._changed:
                    if self._pending is checkpoint:
                        self._pending = None
                    self._changed.notify_all()
                pause = self._pause
            elif self._woken.wait(pause):
                self._woken.clear()
                pause = self._pause
            else:
                pause = min(2 * pause, _LONGEST_PAUSE)
        with self._changed:
            self._changed.notify_all()

    def _attempt(self, task: Callable[[], object]) -> bool:
        """Carry out a task and return whether it succeeded; report the first failure in a row."""
        self._since = monotonic()
        try:
            task()
        except TakenError as error:
            self._is_over, self._taken, self._failure = True, error, "another run is there"
            if not self._is_opening:
                _log.error("%s Nothing is copied there.", error)
            return False
        except BaseException as error:  # what a file system's library raises is not known
            self.remote.reconnect()
            self._report(_reason(error))
            return False
        finally:
            self._since = None
        if self._failure is not None:
            _log.warning("The mirror %s can be written to again.", self.remote.name)
        self._failure = None
        return True

    def _report(self, reason: str) -> None:
        if self._failure is None:
            _log.warning(
                "The mirror %s cannot be written to (%s). Training continues, and it is tried "
                "again: check the address, the rights and the free space there. Until then the "
                "latest checkpoints are only in %s.",
                self.remote.name,
                reason,
                self._run.path,
            )
        self._failure = reason

    def _list(self) -> None:
        """List the checkpoints that are there."""
        names = self.remote.names()
        self._known = {name: one for name, one in self._known.items() if name in names}
        self._unfinished = []
        for name in sorted({*names} - {*self._known}):
            with suppress(DamagedCheckpointError):  # perhaps on the way: it is left alone
                if (one := self.remote.checkpoint(name)) is None:
                    self._unfinished.append(name)
                elif one.manifest.run_id == self._run_id:
                    self._known[name] = one
                else:
                    raise TakenError(
                        f"{self.remote.name} holds run {one.manifest.run_id}, not this run, "
                        f"{self._run_id}: continue that with --resume {self.remote.name}, or "
                        "choose another --mirror."
                    )

    def _list_first(self) -> None:
        self._list()
        there, latest = max(self._known.values(), key=_order, default=None), self._pending
        if there is not None and latest is not None and _order(there) > _order(latest):
            self._pending = None
            _log.warning(
                "The mirror %s has a later checkpoint, at %s frames, than %s, at %s: --resume %s "
                "continues from that.",
                self.remote.name,
                f"{there.frames:,}",
                self._run.path,
                f"{latest.frames:,}",
                self.remote.name,
            )

    def _copy(self, checkpoint: Checkpoint) -> None:
        guard, name = checkpoint.path / MANIFEST, checkpoint.path.name
        if not guard.exists():  # deleted or set aside: a later one follows
            return
        self._list()
        self._done = {place for place in self._done if f"/{name}/" in place}
        with lock.locked(guard):  # it is not deleted meanwhile
            manifest = guard.read_bytes()
            for file, record in checkpoint.manifest.files.items():
                place = f"{SUBDIRECTORY}/{name}/{file}"
                if place not in self._done:
                    # A former process may have copied it.
                    if name not in self._known or not self.remote.matches(place, record):
                        self.remote.put(checkpoint.path / file, place, record)
                    self._done.add(place)
        self._put_run_files()
        self.remote.publish(f"{SUBDIRECTORY}/{name}/{MANIFEST}", manifest)
        self.frames = checkpoint.frames
        self._done.clear()
        self._prune(Checkpoint(Path(name), checkpoint.manifest))

    def _put_run_files(self) -> None:
        for file in _run_files(self._run):
            if file.exists():
                self.remote.publish(file.name, file.read_bytes())

    def _prune(self, newest: Checkpoint) -> None:
        """Delete what is not to be kept, and what was never finished."""
        self._known.pop(newest.path.name, None)
        saved = [*sorted(self._known.values(), key=_order), newest]
        self._known[newest.path.name] = newest
        gone = [one.path.name for one in surplus(saved, self._keep, self._best)]
        try:
            for name in {*gone, *self._unfinished} - {newest.path.name}:
                self.remote.remove(name)
                self._known.pop(name, None)
        except (Exception, CancelledError) as error:  # the next checkpoint tries again
            _log.info("%s: a checkpoint is deleted later: %s", self.remote.name, _reason(error))


def _order(checkpoint: Checkpoint) -> tuple[float, int]:
    # Not by the number of commits alone, which a run repeats after a rollback.
    return checkpoint.manifest.time, checkpoint.manifest.sequence


def _run_files(run: RunDir) -> tuple[Path, ...]:
    return run.config_file, run.run_file, run.metrics


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(without_password(text))


# -- Back from a mirror.


def fetch(
    url: str, run_dir: str | Path, *, attempts: int = 5, pause: float = 1.0
) -> Checkpoint | None:
    """Copy the latest intact checkpoint of a mirror to a run's directory, with the run's files.

    Args:
        url: The mirror's address.
        run_dir: The run's directory, which need not exist.
        attempts: How often each file is read, if that fails.
        pause: Seconds before the second attempt; doubled at each.

    Returns:
        The checkpoint; ``None`` if the mirror has none.

    Raises:
        CheckpointError: If the mirror cannot be read, or none of its checkpoints is intact; if the
            run is being trained.
        TakenError: If the directory holds another run.
        ConfigError: If there is no such file system.
    """
    remote, run = Remote(url), RunDir(run_dir)
    tried: Callable[..., Any] = partial(_tried, remote, attempts, pause)
    failures: dict[str, str] = {}
    for number in range(attempts):
        time.sleep(number * pause)
        names = tried(remote.names)
        complete = _complete(remote, names, tried, failures)
        if complete or not names:
            break  # else an earlier listing was given, perhaps, of what has been deleted since
    if not complete and not failures:
        return None
    for theirs in {one.manifest.run_id for one in complete} - {run.run_id}:
        if run.run_id is not None:
            raise TakenError(
                f"{run.path} holds run {run.run_id}, and {remote.name} run {theirs}: choose "
                "another --run-dir."
            )
    if complete:
        fs.make_directories(run.checkpoints)
        held = lock.RunLock(run.checkpoints)
        try:
            for file in _run_files(run):  # first: the checkpoint shows that they are there
                with suppress(FileNotFoundError):
                    fs.write_atomically(file, tried(remote.read, file.name))
            for one in complete:
                try:
                    return _fetch_one(remote, one, run.checkpoints, tried)
                except DamagedCheckpointError as error:
                    failures[one.path.name] = str(error)
                    _log.warning("%s: an earlier checkpoint is taken.", error)
        finally:
            held.release()
    damage = listed([*failures.values()], most=3)
    raise CheckpointError(f"No checkpoint in {remote.name} is intact: {damage}")


def _complete(
    remote: Remote, names: Sequence[str], tried: Callable[..., Any], failures: dict[str, str]
) -> list[Checkpoint]:
    """The checkpoints that have a manifest, the newest first; adds what is wrong with others."""
    found = []
    for name in names:
        if name not in failures:
            try:
                found.append(tried(remote.checkpoint, name))
            except DamagedCheckpointError as error:
                failures[name] = f"{name} is damaged: {error}"
    return sorted(filter(None, found), key=_order, reverse=True)


def _fetch_one(
    remote: Remote, one: Checkpoint, directory: Path, tried: Callable[..., Any]
) -> Checkpoint:
    name, manifest = one.path.name, one.manifest
    target = directory / name
    if target.exists():
        with suppress(DamagedCheckpointError):
            there = Checkpoint.open(target)
            there.verify()
            if there.manifest == manifest:
                return there
        move_away(target, "aside")
    with fs.new_directory(target) as work:
        for file, record in manifest.files.items():
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            tried(_get, remote, f"{SUBDIRECTORY}/{name}/{file}", work / file, record)
        fs.write_file(work / MANIFEST, manifest.encode())
    return Checkpoint(target, manifest)


def _get(remote: Remote, name: str, target: Path, record: FileRecord) -> None:
    target.unlink(missing_ok=True)  # of an attempt that failed
    with fs.NewFile(target) as file:
        if not remote.matches(name, record, file.write):
            raise DamagedCheckpointError(f"{remote.name}/{name} does not match its hash")


def _tried(
    remote: Remote, attempts: int, pause: float, call: Callable[..., Any], *args: Any
) -> Any:
    while True:
        attempts -= 1
        try:
            return call(*args)
        except FileNotFoundError:
            raise
        except CheckpointError as error:
            if not attempts or not isinstance(error, DamagedCheckpointError):
                raise
        except (Exception, CancelledError) as error:  # what a library raises is not known
            if not attempts:
                raise CheckpointError(
                    f"{remote.name} cannot be read ({_reason(error)}), and may be intact: check "
                    "the address and the rights, and try again."
                ) from error
        remote.reconnect()
        time.sleep(pause)
        pause *= 2
