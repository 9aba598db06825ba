"""One film of one saved policy, or of several beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.words import duration
from ...errors import ConfigError
from ...policies import SavedPolicy, load_policy
from ...policies.evaluation import SEED
from .captions import frames_text, number_text
from .film import Film, one_after_another, side_by_side
from .recording import Recording, View, record_episodes


def film_policies(
    policies: Sequence[SavedPolicy],
    *,
    seed: int = SEED,
    episodes: int = 1,
    view: View | None = None,
    trust: bool = False,
) -> Film:
    """Play saved policies and film them, with frames and return above each.

    Args:
        policies: At least one; several are shown side by side.
        seed: The episodes are seeded from it; all policies play the same ones.
        episodes: How many, one after the other.
        view: How they are shown.
        trust: As for `load_policy`.

    Raises:
        ConfigError: If the environment cannot be made, needs trust, or does not draw.
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
    return film.with_caption(frames_text(saved.frames), aside)
