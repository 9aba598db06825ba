"""`hooktrainer gallery`: show what a run has learned, on one page and in TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.words import plural
from ..errors import CheckpointError
from ..store.run_dir import RunDir
from . import output
from .arguments import Count, Flag, OptionalOutFile, Pixels, RunPath, Seconds, Seed
from .output import step_aside

if TYPE_CHECKING:
    from ..show.gallery import Exhibit, Gallery


_LOOK_SECONDS = 2.0


def gallery(
    run: RunPath,
    /,
    *,
    html: OptionalOutFile = None,
    seed: Seed = None,
    episodes: Count = 10,
    size: Pixels = 360,
    seconds: Seconds = 15.0,
    follow: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Show what a run has learned: its saved policies, played and filmed on one page.

    The self-contained page has the return over the run, a film and the returns of each saved
    policy, the configuration, and the time of each phase. If an environment cannot render, curves
    of observations and actions take the place of films. If the run logs to TensorBoard, the films
    are added there.

    Policies are played at a low priority, in separate environments with fixed seeds, so a run that
    trains is not affected. A second call plays only new policies.

    Example: hooktrainer gallery out -o gallery.html

    Args:
        run: directory of the run, which may still be training
        html: write the page to this file; by default gallery.html in the run's directory
        seed: seed of the episodes, for policies that have not been evaluated yet
        episodes: how many episodes they play; by default 10
        size: longest side of a picture, in pixels; by default 360
        seconds: length at which a film is cut off, by default 15
        follow: continue until the run has ended, and show each policy when it is saved
        trust: run the code that the environment needs, if that is not installed
        json: print JSON: a list with one object per saved policy
    """
    from ..policies.saved import SEED, check_not_negative
    from ..show.gallery import View, make_gallery
    from ..show.report import summarize

    if html is not None:
        output.refuse_directory(html, "gallery.html")
    check_not_negative("--seed", seed)
    view = View(size=size, seconds=seconds)
    step_aside()
    shown: list[Path] = []
    progress = _once_each()
    while True:
        training = follow and summarize(RunDir(run), metric=None).status == "running"
        try:
            made = make_gallery(
                run,
                html,
                seed=SEED if seed is None else seed,
                episodes=episodes,
                view=view,
                trust=trust,
                progress=progress,
            )
        except CheckpointError:
            if not training:
                raise
        else:
            if not training:
                return _report(made, json)
            if shown != (now := [exhibit.saved.path for exhibit in made.exhibits]):
                output.note(f"wrote {made.file}: {plural(len(now), 'policy', 'policies')}")
                shown = now
        time.sleep(_LOOK_SECONDS)


def _once_each() -> Callable[[str], None]:
    """Return a function that prints each line on stderr once."""
    said: set[str] = set()

    def progress(text: str) -> None:
        if text not in said:
            said.add(text)
            output.note(text)

    return progress


def _report(made: Gallery, json: bool) -> int:
    from ..show.gallery.film import return_text

    if json:
        output.print_json([_as_json(exhibit) for exhibit in made.exhibits])
    else:
        rows = [
            (
                exhibit.frames,
                output.duration(exhibit.saved.seconds),
                return_text(exhibit.evaluation),
                f"{exhibit.evaluation.mean_length:,.1f}",
                f"film of {output.duration(exhibit.picture.seconds_shown)}"
                if exhibit.picture.reason is None
                else "curves",
            )
            for exhibit in made.exhibits
        ]
        heads = ("frames", "trained", "return", "length", "picture")
        output.print_table(heads, rows, optional=("trained", "length", "picture"))
    for reason in dict.fromkeys(exhibit.picture.reason for exhibit in made.exhibits):
        if reason is not None:
            output.note(f"curves instead of a film: {reason}")
    board = f", {made.new_on_board} new in TensorBoard" if made.new_on_board else ""
    output.note(f"wrote {made.file} ({output.size(made.file.stat().st_size)}{board})")
    return 0


def _as_json(exhibit: Exhibit) -> dict[str, Any]:
    played, picture = exhibit.evaluation, exhibit.picture
    shown = ("length", "seconds", "seconds_shown", "reason")
    return {
        "path": exhibit.saved.path,
        "frames": exhibit.frames,
        "seconds": exhibit.saved.seconds,
        "return": played.mean,
        "return_std": played.std,
        "length": played.mean_length,
        "episodes": played.episodes,
        "seed": played.seed,
        "picture": {"return": picture.total, **{name: getattr(picture, name) for name in shown}},
    }
