"""Recordings of episodes: the pictures that the environment renders, observations and actions."""

from __future__ import annotations

import ctypes.util
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...base.checks import check_count, check_positive
from ...base.untrusted import one_line
from ...errors import ConfigError
from ...log.media import DEFAULT_FPS
from ...policies import LoadedPolicy, Step, play_episodes
from ...policies.saved import SEED

Frame = NDArray[np.uint8]
"""A picture, uint8 ``[height, width, 3]``."""
MOST_LINES: Final = 8
"""The most recorded components of an observation and of an action."""


@dataclass(frozen=True)
class View:
    """Options for showing an episode.

    Attributes:
        size: Longest side of a picture in pixels; smaller ones are not scaled.
        fps: Most pictures a second. Steps are left out to keep the environment's own speed.
        seconds: Length of the film; the episode is always played to its end.

    Raises:
        ConfigError: If a value is not positive, or the size below 16.
    """

    size: int = 360
    fps: float = 25.0
    seconds: float = 15.0

    def __post_init__(self) -> None:
        if self.size < 16:
            raise ConfigError(f"size={self.size}: a picture has at least 16 pixels a side.")
        check_positive("fps", self.fps)
        check_positive("seconds", self.seconds)


class Recording:
    """One episode, recorded while it is played.

    Every n-th step is rendered and scaled, until the film is long enough or rendering fails for a
    `reason`: then `frames`, of the film with `fps` pictures a second, is empty. `total` is the
    return, `length` the number of actions.
    """

    def __init__(self, env: Any, frame_skip: int, view: View) -> None:
        self.total = 0.0
        self.length = 0
        self.frames: list[Frame] = []
        self.reason: str | None = None
        self._env = env
        self._size = view.size
        self._step_fps = (
            float(getattr(env, "metadata", {}).get("render_fps") or DEFAULT_FPS) / frame_skip
        )
        self._stride = max(1, round(self._step_fps / view.fps))
        self.fps = self._step_fps / self._stride
        self._most = max(1, round(view.seconds * self.fps))
        self._observations: list[NDArray[np.float64]] = []
        self._actions: list[NDArray[np.float64]] = []
        self._first: tuple[Any, Any] | None = None  # first observation and action

    @property
    def observations(self) -> NDArray[np.float64]:
        """The first eight components of the policy's inputs, ``[length, ≤ 8]``."""
        return np.stack(self._observations)

    @property
    def actions(self) -> NDArray[np.float64]:
        """The first eight components of the actions, ``[length, ≤ 8]``."""
        return np.stack(self._actions)

    @property
    def seconds(self) -> float:
        """Length of the episode by the environment's own clock."""
        return self.length / self._step_fps

    @property
    def seconds_shown(self) -> float:
        """Length of the episode that the film shows."""
        return min(len(self.frames) / self.fps, self.seconds) if self.frames else 0.0

    def look(self, step: Step) -> None:
        """Record a moment of the episode."""
        self.total, self.length = step.return_, step.index
        if step.action is not None:
            if self._first is None:
                self._first = (step.observation, step.action)
            observation, action = map(_numbers, (step.observation, step.action), self._first)
            self._observations.append(observation[:MOST_LINES].copy())
            self._actions.append(action[:MOST_LINES].copy())
        due = step.action is None or step.index % self._stride == 0
        if self.reason is not None or not due or len(self.frames) >= self._most:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.frames.append(scaled(self._env.render(), self._size))
        except Exception as error:  # of any kind: the episode continues
            self.reason = _explain(error)
            self.frames.clear()


def record_episodes(
    policy: LoadedPolicy, *, seed: int = SEED, episodes: int = 1, view: View | None = None
) -> list[Recording]:
    """Play episodes in a new environment and record them.

    They are the episodes that `play_episodes` plays with this seed. If rendering fails, the
    episodes are played without. An environment that cannot be made is a `ConfigError`.
    """
    check_count("episodes", episodes)
    env, reason = _open(policy)
    view = view or View()
    recorded: list[Recording] = []

    def watch(step: Step) -> None:
        if step.index == 0:
            recorded.append(Recording(env, policy.saved.frame_skip, view))
            recorded[-1].reason = reason
        recorded[-1].look(step)

    try:
        play_episodes(policy, seed, episodes, watch, env=env)
    finally:
        with suppress(Exception):  # a viewer that failed to open cannot be closed
            env.close()
    return recorded


def _open(policy: LoadedPolicy) -> tuple[Any, str | None]:
    """Make an environment that renders, or one that does not and the reason."""
    draw_off_screen()
    plain = policy.make_env()
    modes = list(getattr(plain, "metadata", {}).get("render_modes") or ())
    if "rgb_array" not in modes:
        name = policy.saved.environment.name
        return plain, f"{name} does not draw: of its render modes {modes} none is rgb_array"
    try:
        drawing = policy.make_env(render_mode="rgb_array")
    except Exception as error:
        return plain, _explain(error)
    plain.close()
    return drawing, None


def scaled(picture: Any, size: int) -> Frame:
    """Shrink a picture so that its longer side is at most ``size``, and make its sides even."""
    from PIL import Image

    array = np.asarray(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3:
        raise TypeError(
            f"render() gave {array.dtype} {list(array.shape)} instead of uint8 [height, width, 3]"
        )
    height, width, _ = array.shape
    half = min(1.0, size / max(height, width)) / 2
    shape = (max(round(width * half), 1) * 2, max(round(height * half), 1) * 2)  # for video codecs
    if shape == (width, height):
        return array.copy()
    return np.asarray(Image.fromarray(array).resize(shape, Image.Resampling.BOX))


def _numbers(value: Any, first: Any) -> NDArray[np.float64]:
    """Flatten an observation or action to the length of the first; NaN for an agent that left."""
    if isinstance(first, Mapping):
        there = value if isinstance(value, Mapping) else {}
        return np.concatenate([_numbers(there.get(key), part) for key, part in first.items()])
    if isinstance(first, tuple):
        parts = value if isinstance(value, tuple) else (None,) * len(first)
        return np.concatenate([_numbers(*pair) for pair in zip(parts, first, strict=True)])
    if value is None:
        return np.full(np.size(first), np.nan)
    return np.asarray(value, np.float64).ravel()


def _explain(error: BaseException) -> str:
    return "drawing failed: " + one_line(f"{type(error).__name__}: {error}", 200)


# -- Drawing without a screen: what pygame and MuJoCo read from the environment variables.

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def draw_off_screen() -> None:
    """Set the environment variables that make pygame and MuJoCo render without a screen.

    Call it before the first environment is made: both read them when they are imported. Values of
    the user are kept, except a MuJoCo library that is not installed: MuJoCo would not start.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if sys.platform != "linux" or wanted not in ("", *_LIBRARIES):
        return
    if not _is_there(wanted):
        found = next(filter(_is_there, _LIBRARIES), None)
        if found or wanted or "DISPLAY" not in os.environ:
            os.environ["MUJOCO_GL"] = found or "disable"


def _is_there(backend: str) -> bool:
    return backend in _LIBRARIES and ctypes.util.find_library(_LIBRARIES[backend]) is not None
