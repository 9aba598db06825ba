"""`hooktrainer gallery` and `render`: pages and films of what a run has learned."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Annotated, Any

from ..base.checks import EVALUATION_SEED
from ..base.words import plural
from ..errors import CheckpointError
from ..store.run_dir import RunDir
from . import output
from .arguments import (
    Count,
    Flag,
    OptionalOutFile,
    OutFile,
    Pixels,
    RunPath,
    SavedSpec,
    Seconds,
    Seed,
    shown_as,
)

if TYPE_CHECKING:
    from ..show import Exhibit, Gallery


Rate = Annotated[float, shown_as("N")]
_LOOK_SECONDS = 2.0


def gallery(
    run: RunPath,
    /,
    *,
    html: OptionalOutFile = None,
    seed: Seed = EVALUATION_SEED,
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
    are added there. Policies of classic control act on the page, and can be dragged and pushed.

    Policies are played at a low priority, in separate environments with fixed seeds, so a run that
    trains is not affected. Each is evaluated once.

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
    from ..show import View, make_gallery, summarize

    if html is not None:
        output.refuse_directory(html, "gallery.html")
    view = View(size=size, seconds=seconds)
    output.step_aside()
    made: Gallery | None = None
    progress = functools.cache(output.note)  # each line once
    while True:
        training = follow and summarize(RunDir(run), metric=None).status == "running"
        try:
            made = make_gallery(
                run,
                html,
                seed=seed,
                episodes=episodes,
                view=view,
                trust=trust,
                progress=progress,
                before=made,
            )
            if not training:
                return _report(made, json)
            progress(f"wrote {made.file}: {plural(len(made.exhibits), 'policy', 'policies')}")
        except CheckpointError:
            if not training:
                raise
        time.sleep(_LOOK_SECONDS)


def _report(made: Gallery, json: bool) -> int:
    from ..show.html import return_text

    if json:
        output.print_json([_as_json(exhibit) for exhibit in made.exhibits])
    else:
        columns: dict[str, output.Column] = {
            "frames": "frames",
            "trained": lambda one: output.duration(one.saved.seconds),
            "return": lambda one: return_text(one.evaluation),
            "length": lambda one: f"{one.evaluation.mean_length:,.1f}",
            "film": lambda one: output.duration(one.picture.seconds_shown),
        }
        output.print_records(made.exhibits, columns, json=False)
    for reason in dict.fromkeys(exhibit.picture.reason for exhibit in made.exhibits):
        if reason is not None:
            output.note(f"curves instead of a film: {reason}")
    output.note(f"wrote {made.file} ({output.size(made.file.stat().st_size)})")
    return 0


def _as_json(exhibit: Exhibit) -> dict[str, Any]:
    saved, played, picture = exhibit.saved, exhibit.evaluation, exhibit.picture
    shown = ("length", "seconds", "seconds_shown", "reason")
    return {
        **{"path": saved.path, "frames": saved.frames, "seconds": saved.seconds},
        **{"return": played.mean, "return_std": played.std, "length": played.mean_length},
        **{"episodes": played.episodes, "seed": played.seed},
        "picture": {"return": picture.total, **{name: getattr(picture, name) for name in shown}},
    }


def render(
    policy: SavedSpec,
    /,
    *,
    file: OutFile,
    all: Flag = False,
    seed: Seed = EVALUATION_SEED,
    episodes: Count = 1,
    fps: Rate = 25.0,
    size: Pixels = 360,
    seconds: Seconds = 20.0,
    quality: Count = 60,
    trust: Flag = False,
) -> int:
    """Make a film of a saved policy, or of all policies of a run side by side.

    Frames and return are shown above each. The film plays at the environment's own speed; at a
    lower frame rate steps are left out. A .webp or .gif repeats forever; an .mp4 needs PyAV.

    Example: hooktrainer render out --all -o learning.webp

    Args:
        policy: RUN (its latest policy), RUN@best, RUN@FRAMES, or the path of a saved policy
        file: write to this file, a .webp, .gif or .mp4
        all: all saved policies of RUN, side by side, from the first to the last
        seed: seed of the episodes; by default that of evaluations
        episodes: how many, one after the other; by default one
        fps: most pictures a second; by default 25
        size: longest side of each picture, in pixels; by default 360
        seconds: length at which an episode is cut off, by default 20
        quality: of a .webp, 0 to 100, by default 60: the more, the larger the file
        trust: run the code that its environment needs, if that is not installed
    """
    from ..policies import find_policy, list_policies
    from ..show import View, encode, film_policies
    from ..show.gallery.film import check_format

    output.refuse_directory(file, "film.webp")
    check_format(file, quality)
    view = View(size=size, fps=fps, seconds=seconds)
    policies = [find_policy(policy)]
    if all:
        policies = list_policies(policies[0].path.parent)
    output.step_aside()
    film = film_policies(policies, seed=seed, episodes=episodes, view=view, trust=trust)
    output.write(file, encode(film, file.suffix or file.name, quality=quality))
    return 0
