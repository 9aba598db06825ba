"""Gallery entries: the saved policies of a run with evaluations and cached pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import CheckpointError, ConfigError
from ...policies import Evaluation, SavedPolicy, evaluate_policy, load_policy
from ...policies.policy_files import POLICY, read_facts
from ...policies.saved import EPISODES, SEED, policy_directory, scan_policies
from .picture import Picture
from .recording import View, draw_off_screen, record_episodes

_VERSION: Final = 1  # of the format of pictures; a new one invalidates the cache


@dataclass(frozen=True)
class Exhibit:
    """A saved policy in the gallery.

    Attributes:
        saved: The policy, with its evaluation.
        picture: An episode of it.
        key: Identifies policy, episode and view of the picture.
    """

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
    say: Callable[[str], None] = lambda text: None,
) -> list[Exhibit]:
    """Evaluate and film all saved policies of a run, each once.

    Evaluations are recorded with the policy, pictures in ``<run>/gallery/``. Nothing else of the
    run is changed, and the run may be training.

    Args:
        run: The run's directory.
        seed: Seed of the evaluation, for policies that have none yet.
        episodes: Episodes of the evaluation, for policies that have none yet.
        view: How the pictures are made.
        trust: As for `load_policy`.
        say: Called with lines about progress, and about damaged policies that are left out.

    Returns:
        The exhibits, by frames. The picture is the first episode of the evaluation.

    Raises:
        ConfigError: If the environment cannot be made or needs trust, there are no episodes, or the
            directory of pictures is a link.
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
        say(f"left out: {reason}")
    exhibits = []
    for saved in policies:
        with _left_out(saved, say):
            if saved.evaluation is None:
                say(f"playing {episodes} episodes of {saved.path.name}")
                saved = evaluate_policy(saved, seed=seed, episodes=episodes, trust=trust)
            exhibits.append(_exhibit(saved, cache, view, say, trust))
    _sweep(cache, exhibits)
    return exhibits


def _exhibit(
    saved: SavedPolicy, cache: Path, view: View, say: Callable[[str], None], trust: bool
) -> Exhibit:
    assert saved.evaluation is not None
    seed = saved.evaluation.seed
    key = f"{_content(saved)}_{_digest([_VERSION, seed, dataclasses.asdict(view)])}"
    place = cache / f"{saved.path.name}_{key}"
    picture = Picture.load(place)
    if picture is None:
        say(f"drawing {saved.path.name}")
        (recording,) = record_episodes(load_policy(saved, trust=trust), seed=seed, view=view)
        picture = Picture.of(recording)
        try:
            picture.save(place)
        except OSError as error:  # the run may be another user's
            say(f"the pictures cannot be kept for the next time: {error.strerror}")
    return Exhibit(saved, picture, key)


@contextmanager
def _left_out(saved: SavedPolicy, say: Callable[[str], None]) -> Iterator[None]:
    """In the block, skip a policy that is damaged, or that a running run has deleted."""
    try:
        yield
    except CheckpointError as error:
        if saved.path.exists():
            say(f"left out: {error}")
    except FileNotFoundError:
        if saved.path.exists():
            raise


def _sweep(cache: Path, exhibits: Sequence[Exhibit]) -> None:
    """Remove pictures of policies that no longer exist."""
    current = {f"{e.saved.path.name}_{e.key.split('_')[0]}" for e in exhibits}
    for path in cache.glob("step_*"):
        if path.name.rpartition("_")[0] not in current and not path.is_dir():
            path.unlink(missing_ok=True)


def _content(saved: SavedPolicy) -> str:
    facts = read_facts(saved.path)
    return _digest([facts["files"][POLICY], facts["env"], saved.frame_skip])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2s(text.encode(), digest_size=5).hexdigest()
