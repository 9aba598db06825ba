"""A recorded episode as kept on disk: the encoded film, or curves where there is none."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...base.text_file import write_atomically
from ...base.untrusted import parse_json, read_file
from .film import Film, check_film, encode
from .recording import Recording

_MOST_POINTS: Final = 200
_MOST_FACTS: Final = 1 << 20
_MOST_FILM: Final = 1 << 28


@dataclass(frozen=True)
class Picture:
    """An episode, ready to be shown.

    Attributes:
        seed: As for `play_episodes`.
        episode: Number of the episode.
        total: The return.
        length: Number of actions.
        seconds: Length by the environment's own clock.
        seconds_shown: Length of the film; 0 without one.
        size: Width and height of the film in pixels.
        film: The film as animated WebP; ``None`` if the environment cannot render.
        reason: Why there is no film.
        observations: The policy's inputs, at most eight lines; empty if there is a film.
        actions: The actions, at most eight lines.
        steps: Steps of the points of these lines.
        left_out: Number of further components of observations and actions.
    """

    seed: int
    episode: int
    total: float
    length: int
    seconds: float
    seconds_shown: float
    size: tuple[int, int]
    film: bytes | None = dataclasses.field(repr=False)
    reason: str | None = None
    observations: tuple[tuple[float, ...], ...] = ()
    actions: tuple[tuple[float, ...], ...] = ()
    steps: tuple[int, ...] = ()
    left_out: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, recording: Recording) -> Picture:
        """Encode a recording."""
        names = ("seed", "episode", "total", "length", "seconds", "reason")
        facts: dict[str, Any] = {name: getattr(recording, name) for name in names}
        if recording.frames:
            film = Film(recording.frames, recording.fps)
            height, width, _ = recording.frames[0].shape
            return cls(
                **facts,
                seconds_shown=recording.seconds_shown,
                size=(width, height),
                film=encode(film.with_pause()),
            )
        last, count = recording.length - 1, min(recording.length, _MOST_POINTS)
        steps = np.unique(np.linspace(0, last, count).round().astype(int))
        return cls(
            **facts,
            seconds_shown=0.0,
            size=(0, 0),
            film=None,
            observations=_lines(recording.observations[steps]),
            actions=_lines(recording.actions[steps]),
            steps=tuple(steps.tolist()),
            left_out=recording.left_out,
        )

    def save(self, place: Path) -> None:
        """Write it atomically: the film as ``.webp``, the rest as ``.json``."""
        place.parent.mkdir(parents=True, exist_ok=True)
        if self.film is not None:
            write_atomically(place.with_name(f"{place.name}.webp"), self.film, durable=False)
        facts = dataclasses.asdict(dataclasses.replace(self, film=None))
        facts["film"] = self.film is not None
        write_atomically(place.with_name(f"{place.name}.json"), json.dumps(facts), durable=False)

    @classmethod
    def load(cls, place: Path) -> Picture | None:
        """Read what `save` wrote; ``None`` if it is absent or damaged."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            facts = parse_json(
                read_file(place.with_name(f"{place.name}.json"), place.parent, _MOST_FACTS)
            )
            film = None
            if facts["film"]:
                film = read_file(place.with_name(f"{place.name}.webp"), place.parent, _MOST_FILM)
                check_film(film, tuple(facts["size"]))
            made = cls(**{name: _tuples(value) for name, value in facts.items()} | {"film": film})
            return made if made.is_sound else None
        return None

    @property
    def is_sound(self) -> bool:
        """Whether every value is valid: files in a run's directory are not trusted."""
        counts = (self.seed, self.episode, self.length, *self.size, *self.steps, *self.left_out)
        numbers = (self.total, self.seconds, self.seconds_shown)
        lines = (*self.observations, *self.actions)
        return (
            all(type(n) is int and 0 <= n < 1 << 53 for n in counts)
            and all(type(x) in (int, float) for x in (*numbers, *(x for li in lines for x in li)))
            and all(0 <= x < 1e11 for x in numbers[1:])
            and all(len(line) == len(self.steps) for line in lines)
            and len(self.size) == len(self.left_out) == 2
            and (self.film is not None or bool(self.steps))
            and (self.reason is None or isinstance(self.reason, str))
        )


def _lines(values: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.4g}") for value in column) for column in values.T)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
