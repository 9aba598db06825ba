"""MinAtar: its planes of booleans as they are, which a small network of convolutions takes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from .family import Family, Wrappers, wrapper


class FirstAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Forgets the last action where an episode begins.

    The game repeats it with a probability of 0.1, also that of the episode before, so that an
    episode would depend on more than its seed.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        game: Any = self.env.unwrapped
        game.game.last_action = 0
        return self.env.reset(seed=seed, options=options)


def _wrappers(spec: EnvSpec, training: bool) -> Wrappers:
    return (wrapper(f"{__name__}:FirstAction"),)


FAMILY = Family(
    name="MinAtar",
    ids=r"MinAtar/",
    wrappers=_wrappers,
    says=lambda spec: "the first action repeats none of the episode before",
)
