"""Gallery entries: the saved policies of a run with evaluations and cached pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...base.fs import write_atomically
from ...base.untrusted import parse_json, read_file
from ...errors import CheckpointError, ConfigError
from ...policies import Evaluation, SavedPolicy, evaluate_policy, load_policy
from ...policies.policy_files import POLICY, decode_data, read_facts
from ...policies.saved import EPISODES, SEED, policy_directory, scan_policies
from .film import Film, check_film, encode
from .recording import Recording, View, draw_off_screen, record_episodes

_VERSION: Final = 1  # of the format of pictures; a new one invalidates the cache


@dataclass(frozen=True)
class Exhibit:
    """A saved policy in the gallery, and an episode of it; `key` identifies policy and view."""

    saved: SavedPolicy
    picture: Picture
    key: str

    @property
    def frames(self) -> int:
        """Environment frames it was trained for."""
        return self.saved.frames

    @property
    def evaluation(self) -> Evaluation:
        """Its recorded evaluation."""
        assert self.saved.evaluation is not None
        return self.saved.evaluation


def make_exhibits(
    run: str | os.PathLike[str],
    *,
    seed: int = SEED,
    episodes: int = EPISODES,
    view: View | None = None,
    trust: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Exhibit]:
    """Evaluate and film all saved policies of a run, each once; return them by frames.

    Evaluations are recorded with the policy, pictures in ``<run>/gallery/``. Nothing else of the
    run is changed, and the run may be training. A picture is the first episode of the evaluation.
    Arguments and errors are those of `make_gallery`; a directory of pictures that is a link is
    refused.
    """
    if episodes < 1:
        raise ConfigError(f"episodes={episodes}: play at least one.")
    view = view or View()
    cache = Path(run) / "gallery"
    if cache.is_symlink():
        raise ConfigError(f"{cache} is a link; pictures are kept, and deleted, in the run itself.")
    draw_off_screen()
    policies, damaged = scan_policies(policy_directory(run))
    for reason in damaged.values():
        progress(f"left out: {reason}")
    exhibits = []
    for saved in policies:
        try:
            if saved.evaluation is None:
                progress(f"playing {episodes} episodes of {saved.path.name}")
                saved = evaluate_policy(saved, seed=seed, episodes=episodes, trust=trust)
            exhibits.append(_exhibit(saved, cache, view, progress, trust))
        except CheckpointError as error:
            if saved.path.exists():  # else the run has deleted it meanwhile
                progress(f"left out: {error}")
    current = {f"{one.saved.path.name}_{one.key.split('_')[0]}" for one in exhibits}
    for path in cache.glob("step_*"):  # of policies that no longer exist
        if path.name.rpartition("_")[0] not in current and not path.is_dir():
            path.unlink(missing_ok=True)
    return exhibits


def _exhibit(
    saved: SavedPolicy, cache: Path, view: View, progress: Callable[[str], None], trust: bool
) -> Exhibit:
    assert saved.evaluation is not None
    seed = saved.evaluation.seed
    facts = read_facts(saved.path)
    content = _digest([facts["files"][POLICY], facts["env"], saved.frame_skip])
    key = f"{content}_{_digest([_VERSION, seed, dataclasses.asdict(view)])}"
    place = cache / f"{saved.path.name}_{key}"
    picture = Picture.load(place)
    if picture is None:
        progress(f"drawing {saved.path.name}")
        (recording,) = record_episodes(load_policy(saved, trust=trust), seed=seed, view=view)
        picture = Picture.of(recording)
        try:
            picture.save(place)
        except OSError as error:  # the run may be another user's
            progress(f"the pictures cannot be cached: {error.strerror}")
    return Exhibit(saved, picture, key)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2s(text.encode(), digest_size=5).hexdigest()


_MOST_POINTS: Final = 200
_MOST_FACTS: Final = 1 << 20
_MOST_FILM: Final = 1 << 28


@dataclass(frozen=True)
class Picture:
    """An episode as in `Recording`, ready to be shown.

    `film` is an animated WebP of `size` width and height, `seconds_shown` long; or ``None`` for a
    `reason`: then observations and actions have at most eight lines each over `steps`.
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

    @classmethod
    def of(cls, recording: Recording) -> Picture:
        """Encode a recording."""
        names = ("seed", "episode", "total", "length", "seconds", "seconds_shown", "reason")
        facts: dict[str, Any] = {name: getattr(recording, name) for name in names}
        if recording.frames:
            film = encode(Film(recording.frames, recording.fps).with_pause())
            height, width, _ = recording.frames[0].shape
            return cls(**facts, size=(width, height), film=film)
        last, count = recording.length - 1, min(recording.length, _MOST_POINTS)
        steps = np.unique(np.linspace(0, last, count).round().astype(int))
        observations, actions = (
            tuple(tuple(float(f"{value:.4g}") for value in column) for column in values[steps].T)
            for values in (recording.observations, recording.actions)
        )
        return cls(
            **facts,
            size=(0, 0),
            film=None,
            observations=observations,
            actions=actions,
            steps=tuple(steps.tolist()),
        )

    def save(self, place: Path) -> None:
        """Write it atomically: the film as ``.webp``, the rest as ``.json``."""
        place.parent.mkdir(parents=True, exist_ok=True)
        if self.film is not None:
            write_atomically(place.with_name(f"{place.name}.webp"), self.film, durable=False)
        facts = dataclasses.asdict(self) | {"film": self.film is not None}
        write_atomically(place.with_name(f"{place.name}.json"), json.dumps(facts), durable=False)

    @classmethod
    def load(cls, place: Path) -> Picture | None:
        """Read what `save` wrote; ``None`` if it is absent or damaged."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            file = place.with_name(f"{place.name}.json")
            facts = parse_json(read_file(file, place.parent, _MOST_FACTS), nan=True)
            film = None
            if facts["film"]:
                film = read_file(place.with_name(f"{place.name}.webp"), place.parent, _MOST_FILM)
                check_film(film, tuple(facts["size"]))
            return decode_data(cls, facts | {"film": film})
        return None

    def __post_init__(self) -> None:
        """Check the values: files in a run's directory are not trusted."""
        lines = (*self.observations, *self.actions)
        if not all(0 <= seconds < 1e11 for seconds in (self.seconds, self.seconds_shown)):
            raise ValueError(f"{self.seconds:.3g} s, shown {self.seconds_shown:.3g} s")
        if any(len(line) != len(self.steps) for line in lines) or not (self.film or self.steps):
            raise ValueError("lines of other steps, or nothing to see")
