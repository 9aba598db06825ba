"""`CheckpointManager`: saves, keeps, finds and restores the checkpoints of one run."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

from ..base import fs
from ..base.checks import check_choice
from ..base.words import listed, which
from ..errors import CheckpointError, DamagedCheckpointError, WriteFailedError
from . import lock
from .backends import backend_name, get_backend
from .lookup import find, list_checkpoints
from .mirror import Mirror
from .provenance import new_run_id, origin
from .retention import Best, Last, Retention, best_of
from .run_dir import RunDir
from .stored import (
    TENSORS,
    TRASH,
    UNFINISHED,
    Checkpoint,
    Manifest,
    delete,
    encode_state,
    free_path,
    move_away,
    surplus,
    sweep,
    write_checkpoint,
)
from .tree import flatten

_log = logging.getLogger(__name__)


class CheckpointManager:
    """Saves, keeps, finds and restores the checkpoints of one run.

    Only one manager at a time writes to a directory: it holds a lock that ends with its process. A
    new manager deletes the unfinished files of earlier processes.

    A save in the background blocks the caller only while the state is copied. The copy takes as
    much memory as the state, and later saves use the same memory. A new save waits for the last.

    Args:
        directory: Where the checkpoints are, usually ``<run>/checkpoints``. Created if missing.
        backend: How tensors are stored; by default ``CKPT_BACKEND``, else ``torch``.
        keep: Which checkpoints to keep. The latest and the best always are.
        best: Selects the best checkpoint; by default the first `Best` in ``keep``.
        background: Whether `save` returns before the state is on the disk.
        on_failure: ``"stop"``: a failed write raises, from `save` itself or, in the background,
            from the next call. ``"continue"``: it is logged.
        config: The configuration of the run, plain data, recorded in every manifest.
        run_id: The run that the checkpoints belong to; by default that of the ``run.json`` next to
            the directory, else that of the checkpoints in it, else a new one.
        mirror: Copies every checkpoint to another place, in the background.

    Attributes:
        forked_from: Where the run branched off, as in `Manifest`; ``None`` if it did not.

    Raises:
        CheckpointError: If another manager writes to the directory, or there is no such back end.
        TakenError: If the mirror holds another run.

    Examples:
        >>> with CheckpointManager("runs/a/checkpoints", keep=Last(2)) as manager:
        ...     manager.save({"weights": torch.ones(3)}, frames=100)
        ...     manager.load("latest")[1]
        {'weights': tensor([1., 1., 1.])}
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        backend: str | None = None,
        keep: Retention | None = None,
        best: Best | None = None,
        background: bool = True,
        on_failure: Literal["stop", "continue"] = "stop",
        config: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        check_choice("on_failure", on_failure, ("stop", "continue"))
        self.directory = Path(directory).absolute()
        self.keep = Last(5) if keep is None else keep
        chosen = best_of(self.keep)  # raises ConfigError unless it is a retention policy
        self.best = best or chosen
        self.config = dict(config or {})
        self.mirror = mirror
        self._run_id = run_id
        self._backend_name = backend_name(backend)
        self._backend = get_backend(self._backend_name)
        self._background = background
        self._on_failure = on_failure
        self._provenance = origin()
        self._copies: dict[str, torch.Tensor] = {}
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._job: Future[None] | None = None
        self._previous: tuple[Checkpoint, list[tuple[int, ...]]] | None = None
        self._loaded: Checkpoint | None = None
        self._listed: dict[Path, Checkpoint] = {}
        fs.make_directories(self.directory)
        # The processes of a run that was killed may end a moment after it.
        self._lock = lock.RunLock(self.directory, seconds=2.0)
        try:
            sweep(self.directory, UNFINISHED, TRASH)
            committed = self.checkpoints()
            latest = committed[-1] if committed else None
            if mirror is not None:
                mirror.open(RunDir(self.directory.parent), self.run_id, self.best, latest)
        except BaseException:
            self._lock.release()
            raise
        self._sequence = latest.manifest.sequence + 1 if latest else 0
        self._time = latest.manifest.time if latest else 0.0
        self.forked_from = latest.manifest.forked_from if latest else None

    @property
    def run_id(self) -> str:
        """The run that the checkpoints belong to; fixed at the first use."""
        if self._run_id is None:
            self._run_id = list_checkpoints(self.directory, self._listed).run_id or new_run_id()
        return self._run_id

    # --- saving --------------------------------------------------------------------------------

    def save(
        self,
        tree: Any,
        *,
        frames: int,
        optim_steps: int = 0,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Save the current state of a tree as a new checkpoint.

        Args:
            tree: The state; see `flatten` for what it may hold.
            frames: Environment frames of the run so far.
            optim_steps: Optimizer steps of the run so far.
            metrics: The latest metrics by name, for `Best`.

        Raises:
            CheckpointError: If the state holds a value that cannot be saved.
            WriteFailedError: If a write failed and ``on_failure`` is ``"stop"``.
        """
        self.wait()
        self._time = max(time.time(), self._time)  # the clock of this machine may be behind
        manifest = Manifest(
            frames=frames,
            optim_steps=optim_steps,
            sequence=self._sequence,
            time=self._time,
            backend=self._backend_name,
            run_id=self.run_id,
            forked_from=self.forked_from,
            metrics={name: float(value) for name, value in (metrics or {}).items()},
            config=self.config,
            best={"metric": self.best.metric, "mode": self.best.mode} if self.best else None,
            **self._provenance,
        )
        self._sequence += 1
        manifest.encode()  # refuses a configuration that cannot be saved, here and now
        skeleton, tensors = flatten(tree)
        state = encode_state(skeleton, tensors)
        if self._background:
            tensors = self._copy(tensors)
        self._job = job = self._pool.submit(self._commit, manifest, state, tensors)
        if not self._background:
            try:
                self.wait()
            finally:  # also if that is interrupted: the caller may change the tensors afterwards
                wait([job])

    def check(self) -> None:
        """Raise (or log) the error of a failed background write; call it after every batch.

        Returns at once while a write is under way.

        Raises:
            WriteFailedError: If a write failed and ``on_failure`` is ``"stop"``.
        """
        if self._job is not None and self._job.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the state given to the last `save` is on the disk; then as `check`."""
        error = None if self._job is None else self._job.exception()
        self._job = None  # not before: if the wait is interrupted, the write continues
        if error is None:
            return
        message = f"A checkpoint could not be written ({error}). Earlier ones are unchanged"
        if not isinstance(error, Exception):
            raise error
        if self._on_failure == "stop":
            raise WriteFailedError(f"{message}.") from error
        _log.error("%s. Training continues.", message)

    def _commit(
        self, manifest: Manifest, state: bytes, tensors: Mapping[str, torch.Tensor]
    ) -> None:
        previous = None  # tensors of a checkpoint known to be intact: no file of it has changed
        if self._previous is not None:
            checkpoint, stats = self._previous
            with suppress(OSError):
                if checkpoint.manifest.backend == manifest.backend and checkpoint.stats() == stats:
                    previous = checkpoint.path / TENSORS
        path = free_path(self.directory, manifest.frames)
        committed = write_checkpoint(path, manifest, state, tensors, self._backend, previous)
        self._previous = committed, committed.stats()
        self._listed[path] = committed
        if self.mirror is not None:
            self.mirror.push(committed)
        try:
            self._prune()
        except OSError as error:  # the state is safe; the next save deletes older ones
            _log.warning("old checkpoints in %s could not be deleted: %s", self.directory, error)

    def _copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy tensors to the CPU, reusing the memory while names and shapes stay the same."""
        copies = self._copies  # copying to new memory takes four times as long
        specs = [(name, x.dtype, x.shape) for name, x in tensors.items()]
        if specs != [(name, copy.dtype, copy.shape) for name, copy in copies.items()]:
            copies.clear()  # before allocating: two copies at once would double the memory
            copies |= {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in specs}
        if copies:
            torch._foreach_copy_(list(copies.values()), list(tensors.values()))
        return copies

    # --- keeping -------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """Return the committed checkpoints of this run, in the order they were committed."""
        found = list_checkpoints(self.directory, self._listed, self._run_id).checkpoints
        self._listed = {checkpoint.path: checkpoint for checkpoint in found}
        return found

    def prune(self) -> list[Checkpoint]:
        """Delete checkpoints by the retention policy; return those that could not be deleted.

        A checkpoint that is being read, or cannot be deleted, is logged and tried again after the
        next save.
        """
        self.wait()
        return self._prune()

    def _prune(self) -> list[Checkpoint]:
        sweep(self.directory, UNFINISHED, TRASH)
        gone = surplus(self.checkpoints(), self.keep, self.best)
        return [checkpoint for checkpoint in gone if not delete(checkpoint.path)]

    def rollback(self, spec: str | Path, *, discard: bool) -> Checkpoint:
        """Make an earlier checkpoint the latest.

        Args:
            spec: The checkpoint to go back to; see `find`.
            discard: Whether to delete the later ones; otherwise they are set aside, under names
                that begin with ``aside-``, and can be loaded by path.

        Raises:
            CheckpointError: If there is no such checkpoint, or a later one cannot be moved away.
        """
        self.wait()
        target = Checkpoint.open(find(spec, self.directory, self.best, self._run_id)[0])
        self._check_own(target)
        target.verify()
        self._drop_later(target, discard=discard)
        self._previous = None
        return target

    def _drop_later(self, target: Checkpoint, *, discard: bool) -> list[Path]:
        """Delete or set aside what was committed later, the last first: a crash leaves no gap."""
        moved = []
        for checkpoint in reversed(self.checkpoints()):
            if checkpoint.manifest.sequence <= target.manifest.sequence:
                break
            try:
                if not discard:
                    moved.append(move_away(checkpoint.path, "aside"))
                elif not delete(checkpoint.path):
                    raise OSError("it is in use")
            except OSError as error:
                raise CheckpointError(
                    f"{checkpoint.path} could not be moved away ({error}); nothing older was."
                ) from error
        return moved

    def resume(self, tree: Any = None) -> None:
        """Make the checkpoint that `load` or `fork` returned last the latest one, if it is not.

        A trainer calls it when training begins and its loggers are rewound: a run killed after that
        has to resume from the loaded state. Later checkpoints are set aside as by `rollback`; a
        checkpoint in another directory is also saved here.

        Args:
            tree: The state that the run resumes, if it is not the loaded one.

        Raises:
            CheckpointError: If a later one cannot be moved, or the state cannot be written.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        if tree is None and any(loaded.path.samefile(own.path) for own in self.checkpoints()):
            for moved in self._drop_later(loaded, discard=False):
                _log.warning("%s is set aside: the run resumes from an earlier one.", moved)
            return
        known, tree = loaded.manifest, loaded.load() if tree is None else tree
        self.save(tree, frames=known.frames, optim_steps=known.optim_steps, metrics=known.metrics)
        self.wait()

    # --- restoring -----------------------------------------------------------------------------

    def load(self, spec: str | Path = "latest") -> tuple[Checkpoint, Any]:
        """Return a checkpoint and the state tree in it, verified.

        If ``spec`` leaves a choice, as ``latest`` does, a damaged checkpoint is replaced by the
        next one and set aside under a name that begins with ``damaged-``, with the reason in
        ``reason.txt``. If none is intact, or one is not accessible, nothing is changed.

        Args:
            spec: Which; see `find`.

        Raises:
            CheckpointError: If there is none, or none is intact; if it belongs to another run, or
                ``spec`` is a word and the directory holds checkpoints of other runs.
        """
        self.wait()
        if which(str(spec)) is not None:
            listing = list_checkpoints(self.directory, self._listed, self._run_id)
            for checkpoint in listing.foreign:
                self._check_own(checkpoint)
        choices = find(spec, self.directory, self.best, self._run_id)
        failures: dict[Path, str] = {}
        for path in choices:
            try:
                checkpoint = Checkpoint.open(path)
                self._check_own(checkpoint)
                tree = checkpoint.load()
                break
            except DamagedCheckpointError as error:
                if len(choices) == 1:
                    raise
                failures[path] = str(error)
                _log.warning("%s", error)
        else:
            raise CheckpointError(
                "No checkpoint is intact, and nothing was changed: "
                f"{listed(failures.values(), most=3)}"
            )
        for damaged, reason in failures.items():
            if self._lies_here(damaged):
                try:
                    aside = move_away(damaged, "damaged")
                    fs.write_file(aside / "reason.txt", f"{reason}\n".encode())
                except OSError as error:
                    _log.warning("%s could not be set aside: %s", damaged, error)
        if failures:
            _log.warning("%s is loaded instead.", path)
        if self._lies_here(path):
            self._previous = checkpoint, checkpoint.stats()
        self._loaded = checkpoint
        return checkpoint, tree

    def fork(self, spec: str | Path) -> tuple[Checkpoint, Any]:
        """Return a checkpoint of any run and its state tree, from which this new run begins.

        The manifests of this run record where it branched off.

        Args:
            spec: Which: the path of a checkpoint or of a run, or ``RUN@best``, ``RUN@FRAMES``.

        Raises:
            CheckpointError: If there is none, or it is damaged; if this run has checkpoints.
        """
        self.wait()
        if self.checkpoints():
            raise CheckpointError(
                f"{self.directory} has checkpoints already: a run that branches off needs a new "
                "directory."
            )
        checkpoint = Checkpoint.open(find(spec)[0])
        tree = checkpoint.load()
        self.forked_from, self._loaded = checkpoint.as_parent(), checkpoint
        return checkpoint, tree

    def _check_own(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint of another run."""
        if (other := checkpoint.manifest.run_id) != self.run_id:
            here = self._lies_here(checkpoint.path)
            raise CheckpointError(
                f"{checkpoint.path} belongs to run {other}, not to this run, {self.run_id} in "
                f"{self.directory.parent}: --fork {checkpoint.path} begins a new run from it"
                + ("; to resume this run, move it away." if here else ".")
            )

    def _lies_here(self, path: Path) -> bool:
        """Whether a checkpoint lies in this directory, whatever symbolic links led there."""
        return path.parent.resolve() == self.directory.resolve()

    # --- closing -------------------------------------------------------------------------------

    def set_deadline(self, deadline: float) -> None:
        """Set when, by `time.monotonic`, `close` waits for the mirror no more."""
        if self.mirror is not None:
            self.mirror.deadline = deadline

    def close(self) -> None:
        """Wait for the last save and the mirror, and release the directory; safe to call again.

        Raises:
            WriteFailedError: If a write failed and ``on_failure`` is ``"stop"``.
        """
        try:
            self.wait()
        finally:
            self._pool.shutdown()  # also waits if `wait` was interrupted
            if self.mirror is not None:
                self.mirror.close()
            self._lock.release()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
