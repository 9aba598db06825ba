"""The pictures in TensorBoard.

They go to a directory of their own, ``<run>/tensorboard/gallery/``. TensorBoard shows it as a run
beside the trainer's, whose files are never touched, so this may be done while the run trains.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...log.media import gif
from ...log.tensorboard import read_events
from .captions import frames_text, return_text
from .exhibits import Exhibit
from .film import Film, decode
from .plot import plot

TAG: Final = "gallery/episode"
_NAME: Final = "events.out.tfevents.{:010d}.gallery"
_NAMES: Final = re.compile(r"events\.out\.tfevents\.([0-9]{10})\.gallery")
_FPS: Final = 12.5  # a GIF is several times as large as a WebP
_WRITER: Final = "hooktrainer.show.gallery "


def write_board(logs: Path, exhibits: Sequence[Exhibit]) -> int:
    """Write the pictures that are not there yet, as animated GIFs, at the frames of their policies.

    They are appended, so that a TensorBoard that is looking shows them; those of policies that were
    thinned out stay. If the file holds others than these, because the run was taken back to a
    checkpoint, a new one takes its place.

    Args:
        logs: The directory that TensorBoard shows.
        exhibits: All there are of the run, by frames; at least one.

    Returns:
        How many were written.
    """
    directory = logs / "gallery"
    if logs.is_symlink() or directory.is_symlink():  # what is written there is somebody else's
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
    """In the block, no other process is in it, where the file system has locks."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_of_another_past(there: set[tuple[int, str]], exhibits: Sequence[Exhibit]) -> bool:
    """Whether there are pictures of what the run has not done, or did otherwise."""
    known = {exhibit.frames: exhibit.key for exhibit in exhibits}
    last = max(known)
    return any(frames > last or known.get(frames, key) != key for frames, key in there)


def _read(path: Path) -> set[tuple[int, str]] | None:
    """Step and key of each picture in a file; ``None`` if its end is torn, or it is none."""
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

    picture = exhibit.picture
    film = Film([plot(picture)], 1.0) if picture.film is None else decode(picture.film)
    film = film.with_caption(
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
