"""`ScriptedEnv`: an environment with written episodes, and `Ledger`, which records its steps."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SCALE: Final = 1024.0
"""Serial numbers in observations are divided by it, which is exact in float32."""
Fault = Literal["nan-observation", "nan-reward", "observation-shape"]


class Episode(NamedTuple):
    """An episode: its observations by number, the final one included, its rewards, and its end."""

    observations: Sequence[int]
    rewards: Sequence[float]
    terminates: bool


@dataclass
class Ledger:
    """What the training environments of a process did.

    Attributes:
        frames: Steps.
        ended: Of each episode that ended: frames then, return, length.
        stepped: The serial number of the observation of each step.
        evaluated: Training frames at which the evaluation environment was stepped.
        kill_at: Frames at which the process kills itself by SIGKILL.
        fault: What is wrong in the step ``fault_at``.
        observations: How many observations were returned.
    """

    kill_at: int | None = None
    fault: Fault | None = None
    fault_at: int = 0
    frames: int = 0
    observations: int = 0
    ended: list[tuple[int, float, int]] = field(default_factory=list)
    stepped: list[int] = field(default_factory=list)
    evaluated: set[int] = field(default_factory=set)


class ScriptedEnv(gym.Env[NDArray[np.float32], np.int64]):
    """Plays written episodes one after the other, again and again; actions change nothing.

    Observations are one-hot codes of numbers, or, if ``serial``, a serial number in each.

    Args:
        episodes: The episodes.
        ledger: Records the steps.
        serial: Whether every observation is another one.
        evaluates: Whether this is an evaluation environment.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        ledger: Ledger,
        serial: bool = False,
        evaluates: bool = False,
    ) -> None:
        self.ledger, self.serial, self.evaluates = ledger, serial, evaluates
        self.episodes = itertools.cycle(episodes)
        self.codes = 1 + max(2, *(max(one.observations) for one in episodes))
        self.observation_space = spaces.Box(0.0, np.inf, (self.codes,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.time, self.number = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode."""
        super().reset(seed=seed)
        self.episode, self.time = next(self.episodes), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the next step of the episode."""
        ledger, episode = self.ledger, self.episode
        reward, self.time = episode.rewards[self.time], self.time + 1
        ends = self.time == len(episode.rewards)
        fault = None
        if self.evaluates:
            ledger.evaluated.add(ledger.frames)
        else:
            ledger.frames += 1
            ledger.stepped.append(self.number)
            if ends:
                ledger.ended.append((ledger.frames, sum(episode.rewards), self.time))
            if ledger.frames == ledger.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if ledger.frames == ledger.fault_at:
                fault = ledger.fault
        observation = self._observe()
        if fault == "nan-observation":
            observation[:] = np.nan
        elif fault == "observation-shape":
            observation = np.zeros(self.codes + 1, np.float32)
        elif fault == "nan-reward":
            reward = float("nan")
        terminated = ends and episode.terminates
        return observation, reward, terminated, ends and not terminated, {}

    def _observe(self) -> NDArray[np.float32]:
        observation = np.zeros(self.codes, np.float32)
        if not self.serial:
            observation[self.episode.observations[self.time]] = 1.0
        elif not self.evaluates:
            self.number = self.ledger.observations
            self.ledger.observations += 1
            observation[0] = self.number / SCALE
        return observation
