"""`make_gallery`: from the saved policies of a run to the page and TensorBoard."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ...base.text_file import write_atomically
from ...errors import CheckpointError, NotFoundError
from ...log.media import gif
from ...log.tensorboard import read_events
from ...policies.saved import EPISODES, SEED, policy_directory
from ...store.run_dir import RunDir
from ..report import read_curves, summarize
from .exhibits import Exhibit, make_exhibits
from .film import decode, frames_text, return_text
from .gallery_page import gallery_page
from .recording import View


class Gallery(NamedTuple):
    """The result of `make_gallery`.

    Attributes:
        file: The page.
        exhibits: The policies on it.
        new_on_board: Number of pictures added to TensorBoard.
    """

    file: Path
    exhibits: Sequence[Exhibit]
    new_on_board: int


def make_gallery(
    run: str | os.PathLike[str],
    file: str | os.PathLike[str] | None = None,
    *,
    seed: int = SEED,
    episodes: int = EPISODES,
    view: View | None = None,
    tensorboard: bool = True,
    trust: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Gallery:
    """Play the saved policies of a run and show them on one page.

    The run may be training. A second call plays only new policies.

    Args:
        run: The run's directory.
        file: The page; by default ``gallery.html`` in the run's directory.
        seed: Seed of the evaluation, for policies that have none yet.
        episodes: Episodes of the evaluation, for policies that have none yet.
        view: How the pictures are made.
        tensorboard: Whether to add them to TensorBoard too, if the run logs there.
        trust: As for `load_policy`.
        progress: Called with lines about progress and about policies that are left out.

    Raises:
        NotFoundError: If there is no such run.
        CheckpointError: If it has no saved policies that can be loaded.
        ConfigError: If the environment cannot be made, or needs trust.
    """
    place = RunDir(run)
    if not place.path.is_dir():
        raise NotFoundError(f"there is no run {place.path}.")
    if not place.holds_run and not policy_directory(run).is_dir():
        raise NotFoundError(f"{place.path} holds no run: no run.json, no policies.")
    exhibits = make_exhibits(
        run, seed=seed, episodes=episodes, view=view, trust=trust, progress=progress
    )
    if not exhibits:
        raise CheckpointError(
            f"{place.path} has no saved policies to show: train with --snapshots 6, or with the "
            "hook PolicySnapshot."
        )
    page = gallery_page(summarize(place), exhibits, read_curves(place), place.read())
    path = place.path / "gallery.html" if file is None else Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page, durable=False)
    new = 0
    if tensorboard and place.logs.is_dir():
        try:
            new = write_board(place.logs, exhibits)
        except OSError as error:  # the run may be another user's
            progress(f"the pictures cannot be added to TensorBoard: {error.strerror}")
    return Gallery(path, exhibits, new)


# -- The pictures in TensorBoard.

TAG: Final = "gallery/episode"
_NAME: Final = "events.out.tfevents.{:010d}.gallery"
_NAMES: Final = re.compile(r"events\.out\.tfevents\.([0-9]{10})\.gallery")
_FPS: Final = 12.5  # a GIF is several times as large as a WebP
_WRITER: Final = "hooktrainer.show.gallery "


def write_board(logs: Path, exhibits: Sequence[Exhibit]) -> int:
    """Add missing pictures to TensorBoard as animated GIFs, at the frames of their policies.

    They are appended, so that a running TensorBoard shows them; those of deleted policies stay. A
    file with other pictures, from before a rollback, is replaced by a new one. Policies without a
    film are left out. Returns the number of pictures added.
    """
    exhibits = [exhibit for exhibit in exhibits if exhibit.picture.film is not None]
    if not exhibits:
        return 0
    directory = logs / "gallery"
    if logs.is_symlink() or directory.is_symlink():  # would write outside of the run
        raise OSError(errno.ELOOP, "it is a link", str(directory))
    directory.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(directory):
        return _write_missing(directory, exhibits)


def _write_missing(directory: Path, exhibits: Sequence[Exhibit]) -> int:
    numbers = [int(m[1]) for path in directory.iterdir() if (m := _NAMES.fullmatch(path.name))]
    number = max(numbers, default=0)
    path = directory / _NAME.format(number)
    there = _read(path)
    if there is None or _is_of_another_past(there, exhibits):
        path.unlink()
        path, there = directory / _NAME.format(number + 1), set()
    missing = [exhibit for exhibit in exhibits if (exhibit.frames, exhibit.key) not in there]
    if not missing:
        return 0
    records = io.BytesIO()
    if not path.exists():
        _add(records, wall_time=exhibits[0].saved.time, file_version="brain.Event:2")
    for exhibit in missing:
        _add_picture(records, exhibit)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o666), "ab") as file:
        file.write(records.getvalue())
    return len(missing)


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """In the block, hold the directory's lock, if the file system has locks."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_of_another_past(there: set[tuple[int, str]], exhibits: Sequence[Exhibit]) -> bool:
    """Return whether there are pictures from before a rollback."""
    known = {exhibit.frames: exhibit.key for exhibit in exhibits}
    last = max(known)
    return any(frames > last or known.get(frames, key) != key for frames, key in there)


def _read(path: Path) -> set[tuple[int, str]] | None:
    """Return step and key of each picture in a file; ``None`` if it is damaged."""
    from google.protobuf.message import DecodeError

    if not os.path.lexists(path):
        return set()
    if path.is_symlink() or not path.is_file():
        return None
    try:
        events, whole = read_events(path)
    except DecodeError:
        return None
    pictures = [event for event in events if event.summary.value]
    keys = {(e.step, e.source_metadata.writer.removeprefix(_WRITER)) for e in pictures}
    return keys if whole else None


def _add_picture(records: io.BytesIO, exhibit: Exhibit) -> None:
    from tensorboard.compat.proto.event_pb2 import SourceMetadata
    from tensorboard.compat.proto.summary_pb2 import Summary

    film = decode(exhibit.picture.film or b"").with_caption(
        frames_text(exhibit.frames), f"return {return_text(exhibit.evaluation)}"
    )
    stride = max(1, round(film.fps / _FPS))
    frames = np.stack(film.frames[::stride])
    _, height, width, channels = frames.shape
    image = Summary.Image(
        height=height,
        width=width,
        colorspace=channels,
        encoded_image_string=gif(frames, film.fps / stride),
    )
    _add(
        records,
        wall_time=exhibit.saved.time,
        step=exhibit.frames,
        summary=Summary(value=[Summary.Value(tag=TAG, image=image)]),
        source_metadata=SourceMetadata(writer=_WRITER + exhibit.key),
    )


def _add(records: io.BytesIO, **fields: Any) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    event = Event(**fields)
    RecordWriter(records).write(event.SerializeToString())
