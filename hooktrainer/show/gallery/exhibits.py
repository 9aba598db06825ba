"""Gallery entries: the saved policies of a run, each with its evaluation and one episode."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base.checks import check_count
from ...errors import CheckpointError
from ...policies import Evaluation, SavedPolicy, evaluate_policy, load_policy
from ...policies.policy_files import POLICY, read_facts
from ...policies.saved import EPISODES, SEED, policy_directory, scan_policies
from .film import Film, encode
from .recording import Recording, View, draw_off_screen, record_episodes


@dataclass(frozen=True)
class Picture:
    """An episode as in `Recording`, ready to be shown.

    `film` is an animated WebP of `size` width and height, `seconds_shown` long; or ``None`` for a
    `reason`: then the page has curves of `observations` and `actions`, ``[length, ≤ 8]``.
    """

    total: float
    length: int
    seconds: float
    seconds_shown: float
    reason: str | None
    size: tuple[int, int]
    film: bytes | None = dataclasses.field(repr=False)
    observations: NDArray[np.float64] = dataclasses.field(repr=False)
    actions: NDArray[np.float64] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, recording: Recording) -> Picture:
        """Encode a recording."""
        size, film = (0, 0), None
        if recording.frames:
            height, width, _ = recording.frames[0].shape
            size, film = (width, height), encode(Film(recording.frames, recording.fps).with_pause())
        names = ("total", "length", "seconds", "seconds_shown", "reason", "observations", "actions")
        return cls(**{name: getattr(recording, name) for name in names}, size=size, film=film)


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
    before: Iterable[Exhibit] = (),
) -> list[Exhibit]:
    """Evaluate all saved policies of a run, each once, and film them; return them by frames.

    Evaluations are recorded with the policy; nothing else of the run is changed, and it may be
    training. A picture is the first episode of the evaluation, taken from ``before`` if it is
    there. Other arguments and errors are those of `make_gallery`.
    """
    check_count("episodes", episodes)
    view = view or View()
    known = {one.key: one.picture for one in before}
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
            assert saved.evaluation is not None
            key = _key(saved, saved.evaluation.seed, view)
            if (picture := known.get(key)) is None:
                progress(f"drawing {saved.path.name}")
                policy = load_policy(saved, trust=trust)
                (recording,) = record_episodes(policy, seed=saved.evaluation.seed, view=view)
                picture = Picture.of(recording)
            exhibits.append(Exhibit(saved, picture, key))
        except CheckpointError as error:
            if saved.path.exists():  # else the run has deleted it meanwhile
                progress(f"left out: {error}")
    return exhibits


def _key(saved: SavedPolicy, seed: int, view: View) -> str:
    facts = read_facts(saved.path)
    content = [facts["files"][POLICY], facts["env"], saved.frame_skip, seed, vars(view)]
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2s(text.encode(), digest_size=5).hexdigest()
