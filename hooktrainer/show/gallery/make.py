"""`make_gallery`: everything, from the saved policies of a run to its page and TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...base.text_file import write_atomically
from ...errors import CheckpointError, NotFoundError
from ...policies.evaluation import EPISODES, SEED
from ...policies.saved import policy_directory
from ...store.run_dir import RunDir
from ..report import read_curves, summarize
from .board import write_board
from .exhibits import Exhibit, make_exhibits
from .gallery_page import gallery_page
from .recording import View


class Gallery(NamedTuple):
    """What `make_gallery` made.

    Attributes:
        file: The page.
        exhibits: What it shows.
        new_on_board: How many pictures TensorBoard has got.
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
    say: Callable[[str], None] = lambda text: None,
) -> Gallery:
    """Play the saved policies of a run and show them on one page.

    It may be called again and again, also while the run trains: only what is new is played.

    Args:
        run: The run's directory.
        file: The page; by default ``gallery.html`` in the run's directory.
        seed: Of the evaluation, for policies that have none yet.
        episodes: Likewise.
        view: How the pictures are made.
        tensorboard: Whether to put them into TensorBoard, too, if the run logs there.
        trust: As for `load_policy`.
        say: Is told what is being done, where it takes time, and what is left out.

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
    exhibits = make_exhibits(run, seed=seed, episodes=episodes, view=view, trust=trust, say=say)
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
        except OSError as error:  # the run may be somebody else's
            say(f"TensorBoard cannot be given the pictures: {error.strerror}")
    return Gallery(path, exhibits, new)
