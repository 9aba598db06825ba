"""`hooktrainer render`: make a film of saved policies."""

from __future__ import annotations

from typing import Annotated

from ..base.text_file import write_atomically
from . import output
from .arguments import Count, Flag, OutFile, Pixels, SavedSpec, Seconds, Seed, shown_as
from .output import step_aside

Number = Annotated[float, shown_as("N")]


def render(
    policy: SavedSpec,
    /,
    *,
    file: OutFile,
    all: Flag = False,
    seed: Seed = None,
    episodes: Count = 1,
    fps: Number = 25.0,
    size: Pixels = 360,
    seconds: Seconds = 20.0,
    quality: Count = 60,
    trust: Flag = False,
) -> int:
    """Make a film of a saved policy, or of all policies of a run side by side.

    Frames and return are shown above each. The film plays at the environment's own speed; at a
    lower frame rate steps are left out. A .webp or .gif repeats for ever; an .mp4 needs PyAV.

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
    from ..policies.saved import SEED, check_not_negative
    from ..show.gallery import View, encode, film_policies
    from ..show.gallery.film import check_format

    output.refuse_directory(file, "film.webp")
    check_format(file, quality)
    check_not_negative("--seed", seed)
    view = View(size=size, fps=fps, seconds=seconds)
    policies = [find_policy(policy)]
    if all:
        policies = list_policies(policies[0].path.parent)
    step_aside()
    film = film_policies(
        policies,
        seed=SEED if seed is None else seed,
        episodes=episodes,
        view=view,
        trust=trust,
    )
    content = encode(film, file.suffix or file.name, quality=quality)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content)
    height, width, _ = film.frames[0].shape
    length = output.duration(len(film.frames) / film.fps)
    output.note(f"wrote {file} ({length}, {width} by {height}, {output.size(len(content))})")
    return 0
