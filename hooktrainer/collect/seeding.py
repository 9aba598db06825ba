"""Seeds of episodes: one for every (run seed, environment, episode)."""

from __future__ import annotations

import numpy as np

from ..errors import ConfigError

_BLOCK = 64  # seeds made at once: a SeedSequence costs as much as a short episode's reset
_RANDOM_ACTIONS = 2**32 - 1  # takes the place of an environment's index


class EpisodeSeeds:
    """Gives every episode its own seed, whatever process or group it runs in.

    The seed of episode ``e`` of environment ``i`` depends on the run's seed, ``i`` and ``e`` alone.
    It is below 2³¹, which every environment accepts.

    Args:
        seed: The run's seed, not negative.
        first_env: Index of the group's first environment among all environments of the run.

    Raises:
        ConfigError: If ``seed`` is negative.
    """

    def __init__(self, seed: int, first_env: int = 0) -> None:
        if seed < 0:
            raise ConfigError(f"seed={seed} is negative: give an integer of 0 or more.")
        self.seed = int(seed)
        self.first_env = first_env
        self._blocks: dict[int, tuple[int, list[int]]] = {}

    def __call__(self, env: int, episode: int) -> int:
        """The seed of an episode.

        Args:
            env: Index of the environment within the group.
            episode: Index of the episode, from 0.
        """
        number, place = divmod(episode, _BLOCK)
        block = self._blocks.get(env)
        if block is None or block[0] != number:
            entropy = [self.seed, self.first_env + env, number]
            words = np.random.SeedSequence(entropy).generate_state(_BLOCK, np.uint32)
            block = self._blocks[env] = (number, (words >> 1).tolist())
        return block[1][place]


def random_action_seed(seed: int, first_env: int = 0) -> int:
    """The seed of the generator that draws random actions, apart from every episode's seed."""
    entropy = [seed, _RANDOM_ACTIONS, *([first_env] if first_env else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
