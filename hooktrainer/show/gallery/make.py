"""`make_gallery`: from the saved policies of a run to the page and TensorBoard."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ...base.text_file import write_atomically
from ...errors import CheckpointError, NotFoundError
from ...log.media import gif
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
_NAMES: Final = re.compile(r"events\.out\.tfevents\.([0-9]{12,})\.(\w+)\.gallery")
_FPS: Final = 12.5  # a GIF is several times as large as a WebP


def write_board(logs: Path, exhibits: Sequence[Exhibit]) -> int:
    """Add missing pictures to TensorBoard as animated GIFs, at the frames of their policies.

    Each is a file of its own, so that a running TensorBoard shows it. Files of deleted policies
    stay; those with other pictures, such as from before a rollback, are deleted. Policies without a
    film are left out. Returns the number of pictures added.
    """
    known = {one.frames: one for one in exhibits if one.picture.film is not None}
    if not known:
        return 0
    directory = logs / "gallery"
    if logs.is_symlink() or directory.is_symlink():  # would write outside of the run
        raise OSError(errno.ELOOP, "it is a link", str(directory))
    directory.mkdir(parents=True, exist_ok=True)
    there = set()
    for path in directory.iterdir():
        if (match := _NAMES.fullmatch(path.name)) is not None:
            frames = int(match[1])
            if frames > max(known) or (frames in known and known[frames].key != match[2]):
                path.unlink(missing_ok=True)
            else:
                there.add(frames)
    missing = [exhibit for frames, exhibit in known.items() if frames not in there]
    for exhibit in missing:
        name = f"events.out.tfevents.{exhibit.frames:012d}.{exhibit.key}.gallery"
        write_atomically(directory / name, _events(exhibit), durable=False)
    return len(missing)


def _events(exhibit: Exhibit) -> bytes:
    """The event file of a picture."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

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
    summary = Summary(value=[Summary.Value(tag=TAG, image=image)])
    time, records = exhibit.saved.time, io.BytesIO()
    for event in (
        Event(wall_time=time, file_version="brain.Event:2"),
        Event(wall_time=time, step=exhibit.frames, summary=summary),
    ):
        RecordWriter(records).write(event.SerializeToString())
    return records.getvalue()
