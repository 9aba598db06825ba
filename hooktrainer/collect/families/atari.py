"""Atari 2600 games as they are usually learned (Mnih et al., 2015; Machado et al., 2018).

Every environment step is four frames of the emulator. What is trained in ends an episode where a
life is lost, though the game goes on, and clips rewards to their sign; what is played in does not.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs

from ...errors import ConfigError
from .family import Family, Wrappers, gymnasiums, wrapper

FRAME_SKIP = 4
STACK = 4


class Blind(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Plays a frame without looking at it.

    ``AtariPreprocessing`` takes the screen from the emulator, two frames of four. Nobody sees what
    the environment itself makes of all four, which takes a fifth of a step.

    Args:
        env: The game, whose observations are of the screen.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        game: Any = env.unwrapped
        self._ale = game.ale
        self._codes = game._action_set

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a frame; the observation is ``None``."""
        ale = self._ale
        reward = ale.act(self._codes[action])
        info = {
            "lives": ale.lives(),
            "episode_frame_number": ale.getEpisodeFrameNumber(),
            "frame_number": ale.getFrameNumber(),
        }
        return None, reward, ale.game_over(with_truncation=False), ale.game_truncated(), info


class Lives(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Presses FIRE where a life begins, if the game has it, and may end episodes where one is lost.

    An episode that begins after a life was lost goes on in the same game: it begins with the next
    life, whatever seed it is given. So it is brought back by playing the game again from its seed.

    Args:
        env: The game.
        end_episodes: Whether an episode ends where a life is lost.
    """

    def __init__(self, env: gym.Env[Any, Any], end_episodes: bool = False) -> None:
        RecordConstructorArgs.__init__(self, end_episodes=end_episodes)
        super().__init__(env)
        self.end_episodes = end_episodes
        game: Any = env.unwrapped
        self._ale = game.ale
        meanings = game.get_action_meanings()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._seed = 0
        self._actions = bytearray()  # of the whole game
        self._lives = 0
        self._goes_on = False  # whether the game does, though the episode ended

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next life, or a new game."""
        if self._goes_on:
            self._goes_on = False
            observation, _, terminated, truncated, info = self._act(self._fire or 0)
            if not (terminated or truncated):
                return observation, info
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._seed = seed
        self._actions.clear()
        return self._new_game()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play four frames; where a life was lost, end the episode or press FIRE."""
        before = self._lives
        observation, reward, terminated, truncated, info = self._act(int(action))
        if self._lives >= before or terminated or truncated:
            return observation, reward, terminated, truncated, info
        if self.end_episodes:
            self._goes_on = True
            return observation, reward, True, False, info
        if self._fire is not None:
            observation, more, terminated, truncated, info = self._act(self._fire)
            reward += more
        return observation, reward, terminated, truncated, info

    def episode_state(self) -> dict[str, Any]:
        """What leads to where the game is."""
        actions = np.frombuffer(bytes(self._actions), np.uint8).copy()
        return {"seed": self._seed, "actions": actions, "goes_on": self._goes_on}

    def set_episode_state(self, state: dict[str, Any]) -> None:
        """Play the game again to where it was."""
        self._seed = int(state["seed"])
        self._actions.clear()
        self._new_game()
        for action in np.asarray(state["actions"], np.uint8).tolist():
            self._act(action)
        self._goes_on = bool(state["goes_on"])

    def _new_game(self) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=self._seed)
        if self._fire is not None:
            observation, _, terminated, truncated, info = self.env.step(self._fire)
            if terminated or truncated:
                observation, info = self.env.reset()
        self._lives = self._ale.lives()
        return observation, info

    def _act(self, action: int) -> Any:
        self._actions.append(action)
        outcome = self.env.step(action)
        self._lives = self._ale.lives()
        return outcome


def _wrappers(spec: EnvSpec, training: bool) -> Wrappers:
    for name, wanted in {**FAMILY.kwargs, "continuous": False, "sound_obs": False}.items():
        if spec.kwargs.get(name, wanted) != wanted:
            raise ConfigError(
                f"env_kwargs: {name}={spec.kwargs[name]!r} does not go with the usual wrappers of "
                f"{spec.id}, which need {wanted!r}: leave it out, or them, with "
                "usual_wrappers=False (--no-usual-wrappers)."
            )
    preprocessing = gymnasiums(
        "AtariPreprocessing",
        "atari_preprocessing",
        noop_max=30,
        frame_skip=FRAME_SKIP,
        screen_size=84,
        grayscale_obs=True,
    )
    stack = gymnasiums("FrameStackObservation", "stateful_observation", stack_size=STACK)
    sign = gymnasiums("ClipReward", "transform_reward", min_reward=-1.0, max_reward=1.0)
    lives = wrapper(f"{__name__}:Lives", end_episodes=training)
    blind = wrapper(f"{__name__}:Blind")
    return (blind, preprocessing, stack, *((sign,) if training else ()), lives)


def _says(spec: EnvSpec) -> str:
    sticky = spec.kwargs.get("repeat_action_probability", 0.0)
    return (
        f"84x84 gray, {STACK} stacked, {FRAME_SKIP} emulator frames a frame (max of the last two), "
        f"up to 30 no-ops and FIRE to start, sticky actions {sticky:g}; in training a lost life "
        "ends the episode and rewards are clipped to [-1, 1]"
    )


FAMILY = Family(
    name="Atari",
    ids=r"ALE/|\w+NoFrameskip-v4$",
    wrappers=_wrappers,
    says=_says,
    kwargs={"frameskip": 1, "obs_type": "grayscale"},
)
