"""Films: captions, several side by side, and the file formats."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...base.words import duration, plural
from ...errors import ConfigError
from ...policies import SavedPolicy, load_policy
from ...policies.saved import SEED
from ..html import number_text
from .recording import Frame, Recording, View, record_episodes

_HOLD_SECONDS: Final = 0.8  # the last picture is held before the film repeats
_BAND: Final = 30  # height of a caption, in pixels
_FONT: Final = 13
_INK, _DIM, _PAPER = (28, 33, 40), (93, 102, 115), (247, 248, 250)
FORMATS: Final = (".webp", ".gif", ".mp4")
"""The file formats, by suffix."""


@dataclass(frozen=True)
class Film:
    """A sequence of pictures.

    Attributes:
        frames: uint8 ``[height, width, 3]`` each, all of one shape; at least one.
        fps: Pictures a second.
    """

    frames: Sequence[Frame]
    fps: float

    def with_pause(self) -> Film:
        """Return the film with its last picture held for 0.8 seconds."""
        pause = [self.frames[-1]] * round(_HOLD_SECONDS * self.fps)
        return replace(self, frames=[*self.frames, *pause])

    def with_caption(self, text: str, aside: str = "") -> Film:
        """Return the film with a line of text above; ``aside`` is flush right and paler."""
        from PIL import Image, ImageDraw, ImageFont

        width = self.frames[0].shape[1]
        font: Any = ImageFont.load_default(_FONT)
        band = Image.new("RGB", (width, _BAND), _PAPER)
        draw = ImageDraw.Draw(band)
        draw.text((8, _BAND / 2), text, fill=_INK, font=font, anchor="lm")
        if draw.textlength(text + aside, font=font) + 24 <= width:
            draw.text((width - 8, _BAND / 2), aside, fill=_DIM, font=font, anchor="rm")
        above = np.asarray(band)
        return replace(self, frames=[np.concatenate([above, frame]) for frame in self.frames])


def one_after_another(films: Sequence[Film]) -> Film:
    """Join films of one shape and speed, with a pause after each."""
    return Film([frame for film in films for frame in film.with_pause().frames], films[0].fps)


def columns_of(count: int) -> int:
    """Return the number of films in a row, so that rows are of one length where possible."""
    return count if count <= 4 else 3 if count in (5, 6, 9) else 4


def side_by_side(films: Sequence[Film], *, gap: int = 8) -> Film:
    """Show films at once, in rows. Shorter ones repeat until the longest has ended.

    Args:
        films: At least one, of one speed.
        gap: Pixels between them.
    """
    height = max(film.frames[0].shape[0] for film in films)
    width = max(film.frames[0].shape[1] for film in films)
    columns = columns_of(len(films))
    rows = -(-len(films) // columns)
    shape = (rows * (height + gap) + gap, columns * (width + gap) + gap, 3)
    empty = np.full(shape, _PAPER, np.uint8)
    frames = []
    for time in range(max(len(film.frames) for film in films)):
        picture = empty.copy()
        for place, film in enumerate(films):
            frame = film.frames[time % len(film.frames)]
            top = gap + (place // columns) * (height + gap)
            left = gap + (place % columns) * (width + gap)
            picture[top : top + frame.shape[0], left : left + frame.shape[1]] = frame
        frames.append(picture)
    return Film(frames, films[0].fps)


def encode(film: Film, suffix: str = ".webp", *, quality: int = 60) -> bytes:
    """Encode a film as a file; WebP and GIF repeat forever.

    Args:
        film: The film.
        suffix: One of `FORMATS`.
        quality: Of WebP, 0 to 100.

    Raises:
        ConfigError: For another suffix or quality, or ``.mp4`` without PyAV.
    """
    check_format(suffix, quality)
    if suffix == ".webp":
        return _webp(film, quality)
    if suffix == ".gif":
        from ...log.media import gif

        return gif(np.stack(film.frames), film.fps)
    return _mp4(film)


def check_format(file: str | Path, quality: int = 60) -> None:
    """Refuse a file name or suffix, or a quality, that `encode` would refuse."""
    name = str(file)
    if not name.endswith(FORMATS):
        raise ConfigError(f"{name}: the name of a film ends in .webp, .gif or .mp4.")
    if not 0 <= quality <= 100:
        raise ConfigError(f"quality={quality}: give a number from 0 to 100.")
    if name.endswith(".mp4"):
        _av()


def decode(data: bytes) -> Film:
    """Decode an animated WebP of `encode`."""
    from PIL import Image, ImageSequence

    frames: list[Frame] = []
    with Image.open(io.BytesIO(data), formats=["WEBP"]) as image:
        durations = []
        for picture in ImageSequence.Iterator(image):
            frames.append(np.asarray(picture.convert("RGB")))
            durations.append(float(picture.info.get("duration", 0)))
    shortest = min([duration for duration in durations if duration > 0], default=40.0)
    # Consecutive equal pictures are stored once, with a longer duration.
    repeats = [max(1, round(duration / shortest)) for duration in durations]
    repeated = [f for f, times in zip(frames, repeats, strict=True) for _ in range(times)]
    return Film(repeated, 1000.0 / shortest)


def _webp(film: Film, quality: int) -> bytes:
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in film.frames]
    out = io.BytesIO()
    pictures[0].save(
        out,
        "WEBP",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1000 / film.fps),
        loop=0,
        quality=quality,
        method=4,
        minimize_size=True,
    )
    return out.getvalue()


def _mp4(film: Film) -> bytes:
    from fractions import Fraction

    av = _av()
    height, width, _ = film.frames[0].shape
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(film.fps).limit_denominator(1000))
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for frame in film.frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return out.getvalue()


def _av() -> Any:
    try:
        import av
    except ModuleNotFoundError:
        raise ConfigError(
            "an .mp4 needs PyAV: pip install 'hooktrainer[video]'. A .webp or a .gif needs nothing."
        ) from None
    return av


# -- A film of one saved policy, or of several side by side.


def film_policies(
    policies: Sequence[SavedPolicy],
    *,
    seed: int = SEED,
    episodes: int = 1,
    view: View | None = None,
    trust: bool = False,
) -> Film:
    """Play saved policies and film them, with frames and return above each.

    Several are shown side by side, and play the same episodes, one after the other. Other arguments
    are those of `make_gallery`. It is a `ConfigError` if an environment cannot be made or rendered,
    or needs trust.
    """
    films = []
    for saved in policies:
        policy = load_policy(saved, trust=trust)
        recordings = record_episodes(policy, seed=seed, episodes=episodes, view=view)
        films.append(one_after_another([_captioned(saved, shown) for shown in recordings]))
    return films[0] if len(films) == 1 else side_by_side(films)


def _captioned(saved: SavedPolicy, recording: Recording) -> Film:
    if recording.reason is not None:
        raise ConfigError(
            f"there is nothing to render: {recording.reason}. hooktrainer gallery shows the curves "
            "of observations and actions instead."
        )
    aside = f"return {number_text(recording.total)}"
    if recording.seconds_shown < recording.seconds - 0.5:
        aside += f" · {duration(recording.seconds_shown)} of {duration(recording.seconds)}"
    film = Film(recording.frames, recording.fps)
    return film.with_caption(plural(saved.frames, "frame"), aside)
