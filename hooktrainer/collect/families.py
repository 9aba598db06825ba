"""The wrappers of an environment that is given by its id: the usual ones, and the user's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.utils import RecordConstructorArgs

from ..base.imports import import_named, import_place
from ..errors import ConfigError
from .make_envs import explain_env_errors, find_spec
from .worlds.world_ids import is_world, minigrid_wrappers, wrapper

Wrappers = tuple[WrapperSpec, ...]
Wrapped = tuple[Wrappers, Wrappers, str]
"""The wrappers for training and for evaluation, innermost first; a description of them."""
_GYMNASIUMS: Final = "gymnasium.wrappers"


# -- Atari 2600 games as they are usually learned (Mnih et al., 2015; Machado et al., 2018).

# In training a lost life ends the episode, though the game continues, and rewards are clipped to
# their sign. In evaluation neither is so.
FRAME_SKIP = 4
STACK = 4


class SkipRendering(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Steps the emulator without rendering the frame.

    ``AtariPreprocessing`` reads the screen from the emulator, in two frames of four. The
    environment's own rendering of all four takes a fifth of a step's time and is not used.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        game: Any = env.unwrapped
        self._ale = game.ale
        self._codes = game._action_set

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        ale = self._ale
        reward = ale.act(self._codes[action])
        info = {
            "lives": ale.lives(),
            "episode_frame_number": ale.getEpisodeFrameNumber(),
            "frame_number": ale.getFrameNumber(),
        }
        return None, reward, ale.game_over(with_truncation=False), ale.game_truncated(), info


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Presses FIRE at the start of a life, if the game has it; may end an episode when one is lost.

    The next episode then continues the same game with the next life, whatever its seed. So an
    episode is restored by replaying the game from the game's seed.
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
        self._goes_on = False  # whether the game continues, though the episode ended

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
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
        actions = np.frombuffer(bytes(self._actions), np.uint8).copy()
        return {"seed": self._seed, "actions": actions, "goes_on": self._goes_on}

    def set_episode_state(self, state: dict[str, Any]) -> None:
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


_ATARI_KWARGS = {"frameskip": 1, "obs_type": "grayscale"}


def _atari(spec: EnvSpec) -> Wrapped:
    for name, wanted in {**_ATARI_KWARGS, "continuous": False, "sound_obs": False}.items():
        if spec.kwargs.get(name, wanted) != wanted:
            raise ConfigError(
                f"env_kwargs: the usual wrappers of {spec.id} need {name}={wanted!r}, not "
                f"{spec.kwargs[name]!r}: leave it out, or pass usual_wrappers=False."
            )
    preprocessing = wrapper(
        "AtariPreprocessing",
        f"{_GYMNASIUMS}.atari_preprocessing",
        noop_max=30,
        frame_skip=FRAME_SKIP,
        screen_size=84,
        grayscale_obs=True,
    )
    stack = wrapper(
        "FrameStackObservation", f"{_GYMNASIUMS}.stateful_observation", stack_size=STACK
    )
    sign = wrapper("ClipReward", f"{_GYMNASIUMS}.transform_reward", min_reward=-1.0, max_reward=1.0)
    both = (wrapper("SkipRendering"), preprocessing, stack)
    sticky = spec.kwargs.get("repeat_action_probability", 0.0)
    return (
        (*both, sign, wrapper("EpisodicLife", end_episodes=True)),
        (*both, wrapper("EpisodicLife", end_episodes=False)),
        f"84x84 gray, {STACK} stacked, {FRAME_SKIP} emulator frames a frame (max of the last two), "
        f"up to 30 no-ops and FIRE to start, sticky actions {sticky:g}; in training a lost life "
        "ends the episode and rewards are clipped to [-1, 1]",
    )


# -- dm_control's suite through shimmy: the dict of vectors is flattened to one vector.


def _dm_control(spec: EnvSpec) -> Wrapped:
    flat = (wrapper("FlattenObservation", f"{_GYMNASIUMS}.transform_observation"),)
    return flat, flat, "the parts of an observation in one vector"


# -- MinAtar: the boolean planes unchanged, for a small convolutional network.


class FirstAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Clears the last action at a reset; the game's sticky actions would repeat it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        game: Any = self.env.unwrapped
        game.game.last_action = 0
        return self.env.reset(**options)


def _minatar(spec: EnvSpec) -> Wrapped:
    first = (wrapper("FirstAction"),)
    return first, first, "the first action repeats none of the previous episode"


# -- MiniGrid and BabyAI: the image and the direction; the mission where it varies.


class CategoricalImage(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Declares the image as a grid of categorical cells: indices of object, color and state."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX

        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        parts: Any = env.observation_space
        numbers = [OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX]
        sizes = [max(number.values()) + 1 for number in numbers]
        sizes[-1] = max(sizes[-1], len(DIR_TO_VEC))  # the state of the agent is where it faces
        shape = parts["image"].shape
        cells = gym.spaces.MultiDiscrete(np.broadcast_to(sizes, shape), dtype=np.uint8)
        self.observation_space = gym.spaces.Dict({**parts.spaces, "image": cells})


def _mission_varies(spec: EnvSpec) -> bool:
    """Whether missions differ between episodes."""
    if spec.id.startswith("BabyAI-"):
        return True
    with gym.make(spec, disable_env_checker=True) as made:
        space: Any = made.observation_space
    return bool(space["mission"].ordered_placeholders)


def _minigrid(spec: EnvSpec) -> Wrapped:
    varies = _mission_varies(spec)
    description = "image and direction, without the mission, which is always the same"
    if varies:
        description = "image, direction, and the mission as word indices"
    both = minigrid_wrappers(varies)
    return both, both, description


_FAMILIES: Final[Mapping[str, tuple[str, Callable[[EnvSpec], Wrapped], Mapping[str, Any]]]] = {
    r"ALE/|\w+NoFrameskip-v4$": ("Atari", _atari, _ATARI_KWARGS),
    r"MiniGrid-|BabyAI-": ("MiniGrid", _minigrid, {}),
    r"MinAtar/": ("MinAtar", _minatar, {}),
    r"dm_control/": ("dm_control", _dm_control, {}),
}
"""By prefix of the id: the family's name, its wrappers, and the keyword arguments they need."""


@dataclass(frozen=True)
class UsualWrappers:
    """An environment with the wrappers that are usual for it.

    Attributes:
        train: The environment for training, with its keyword arguments.
        play: The environment for evaluation: whole episodes with their true returns.
        description: The wrappers, in a line.
    """

    train: EnvSpec
    play: EnvSpec
    description: str


def usual_wrappers(env: Any, env_kwargs: Mapping[str, Any] | None = None) -> UsualWrappers | None:
    """Return an environment with the wrappers that are usual for its id or specification.

    Returns:
        The wrapped environment; ``None`` if its family has no usual wrappers, if it has wrappers
        already, or if it is given by a function.

    Raises:
        ConfigError: If an argument does not go with the wrappers.
        MissingPackageError: If a package of a family is missing, or has no such environment.
    """
    if not isinstance(env, (str, EnvSpec)):
        return None
    env_id = env.rpartition(":")[2] if isinstance(env, str) else env.id
    family = next((_FAMILIES[ids] for ids in _FAMILIES if re.match(ids, env_id)), None)
    if family is None:
        return None
    spec = find_spec(env) if isinstance(env, str) else env
    if spec.additional_wrappers:
        return None
    name, wrap, kwargs = family
    bare = copy.deepcopy(spec)
    bare.kwargs = {**spec.kwargs, **kwargs, **(env_kwargs or {})}
    bare.vector_entry_point = None  # it would leave out the wrappers
    with explain_env_errors(spec, env_kwargs):
        train, play, description = wrap(bare)
    return UsualWrappers(
        dataclasses.replace(bare, additional_wrappers=train),
        dataclasses.replace(bare, additional_wrappers=play),
        f"{spec.id} with the wrappers usual for {name}: {description}; --no-usual-wrappers leaves "
        "them out",
    )


def in_wrappers(env: Any, wrappers: Sequence[str]) -> EnvSpec:
    """Return the specification of an environment in wrappers, around those that it has.

    Args:
        env: Its id or specification.
        wrappers: ``module:name`` or ``path/to/file.py:name`` of classes or functions of an
            environment ``env``, the innermost first.

    Raises:
        ConfigError: If the environment is given otherwise, or there is no such wrapper.
        MissingPackageError: If a package is missing.
    """
    if not isinstance(env, (str, EnvSpec)) or is_world(env):
        raise ConfigError(
            f"wrappers={list(wrappers)} go around an environment of Gymnasium that is given by its "
            f"id, and {env!s:.80} is none: wrap it in a function that makes it, and pass that as "
            "env."
        )
    spec = copy.deepcopy(find_spec(env) if isinstance(env, str) else env)
    spec.vector_entry_point = None  # it would leave out the wrappers
    places = map(_importable, wrappers)
    added = tuple(WrapperSpec(place, place, {}) for place in places)
    return dataclasses.replace(spec, additional_wrappers=(*spec.additional_wrappers, *added))


_HAVE_STATISTICS: Final[Mapping[Any, str]] = {
    gym.wrappers.NormalizeObservation: "normalize_observations",
    gym.wrappers.NormalizeReward: "scale_rewards",
}
"""By wrapper, the option that does the same with statistics of the run."""


def _importable(name: str) -> str:
    """The name of a wrapper as ``module:name``, by which saved policies and processes import it."""
    found = import_named(name)
    try:
        inspect.signature(found).bind(env=None)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"wrappers: {name} is not called with an environment `env` alone ({error}): name a "
            "class or function that is."
        ) from error
    if (option := _HAVE_STATISTICS.get(found)) is not None:
        raise ConfigError(
            f"wrappers: the running statistics of {name} are part of no saved policy, and differ "
            f"in evaluations: pass {option}=True in place of it."
        )
    place, _, own = name.rpartition(":")
    return f"{import_place(place).__name__}:{own}"
