"""What every benchmark script shares: its options, one clock, one judge, one line of JSON.

A script trains as its library does and calls `Meter.tick` once a rollout (or every 100 frames).
The meter starts its clock after the warm-up, stops it while it judges the policy, and returns when
the run is over. All scripts are therefore timed and judged alike.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv

Act = Callable[[np.ndarray], np.ndarray]
"""Observations `[100, ...]` to the policy's deterministic actions `[100, ...]`."""

EPISODES = 100
"""Every mean return is taken over this many episodes."""


@dataclass(frozen=True)
class Goal:
    """When an environment counts as solved.

    Args:
        threshold: the mean return to reach.
        interval: frames between two evaluations of the deterministic policy.
        training: whether the last 100 training episodes, explored as the algorithm does, must
            reach the threshold too (a longer way than a good deterministic policy).
    """

    threshold: float
    interval: int
    training: bool


GOALS = {
    "CartPole-v1": Goal(threshold=475.0, interval=2_500, training=True),
    "PongNoFrameskip-v4": Goal(threshold=18.0, interval=100_000, training=True),
    "vmas": Goal(threshold=float("inf"), interval=10**9, training=False),
    "Pendulum-v1": Goal(threshold=-200.0, interval=500, training=False),
}


@dataclass(kw_only=True)
class Run:
    """Options that every benchmark script takes."""

    frames: int = 60_000
    """environment frames to train for; with --solve, frames after which the run gives up"""
    warmup: int = 10_000
    """frames before the clock starts (compilation, first calls, filling of caches)"""
    solve: bool = False
    """stop when solved, and time the whole training from its first frame"""
    seed: int = 0
    """seed of the run"""
    core: int = -1
    """the CPU core to run on; -1 leaves the choice to the operating system"""
    log_dir: Path = Path()
    """where log files go"""

    def prepare(self) -> None:
        """Pin the process, use one thread, and seed Python, NumPy and torch."""
        if self.core >= 0 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {self.core})
        random.seed(self.seed)
        np.random.seed(self.seed)
        with suppress(ImportError):  # in an environment without it, as that of JAX
            import torch

            torch.set_num_threads(1)
            torch.manual_seed(self.seed)


class Meter:
    """The clock and the judge of one training run.

    Args:
        run: the script's options.
        env_id: the environment that is trained on; its goal decides when it is solved.
    """

    def __init__(self, run: Run, env_id: str) -> None:
        self.run = run
        self.env_id = env_id
        self.goal = GOALS[env_id]
        self.curve: list[tuple[int, float]] = []
        self.reached: dict[str, dict[str, float]] = {}
        self.returns: deque[float] = deque(maxlen=EPISODES)
        """The returns of the last training episodes; the scripts add to it."""
        self.over = False
        self.learned: float | None = None
        """The mean return of the deterministic policy at the end."""
        self._first: tuple[int, float, float, float] | None = None
        self._last: tuple[int, float, float, float] | None = None
        self._peak = 0  # KiB, before what is learned is measured
        self._paused_cpu = 0.0
        self._paused_wall = 0.0
        self._next_evaluation = self.goal.interval

    def start(self) -> None:
        """Call right before the first frame: with `solve` the clock starts here."""
        if self.run.solve:
            self._first = self._now(0)

    def tick(self, frames: int, act: Act | None = None) -> bool:
        """Note that `frames` frames were collected and trained on; true when the run is over.

        `act` is the deterministic policy. Its return is measured when the run is over, and with
        `solve` in between, while the clock stands.
        """
        if self._first is None and frames >= self.run.warmup:
            self._first = self._now(frames)
        self.over = frames >= self.run.frames
        if self.run.solve or self.over:
            self._last = self._now(frames)
        if self.run.solve and act is not None:
            with self.paused():
                self.over = self._judge(frames, act) or self.over
        self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self.over and act is not None:
            self.learned = round(mean_return(self.env_id, act), 2)
        return self.over

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for work that only the benchmark needs."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self._paused_cpu += time.process_time() - cpu
        self._paused_wall += time.perf_counter() - wall

    def print(self, **extra: Any) -> None:
        """Print the result as one line of JSON, the last line of the script's output."""
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            raise RuntimeError(
                f"nothing was timed: {self.run.frames} frames with a warm-up of {self.run.warmup}"
            )
        frames, cpu, wall, memory = (b - a for a, b in zip(self._first, self._last, strict=True))
        options = asdict(self.run)
        result = {
            "env": self.env_id,
            "frames": frames,
            "cpu_seconds": round(cpu, 4),
            "wall_seconds": round(wall, 4),
            "frames_per_cpu_second": round(frames / cpu, 1),
            "cpu_microseconds_a_frame": round(1e6 * cpu / frames, 3),
            "memory_growth_mib": round(memory, 1),
            "peak_memory_mib": round(self._peak / 1024, 1),
            "mean_return": self.learned,
            "options": {k: v for k, v in options.items() if not isinstance(v, Path)},
            **extra,
        }
        if self.run.solve:
            result |= {"reached": self.reached, "curve": self.curve}
        print(json.dumps(result), flush=True)

    def _now(self, frames: int) -> tuple[int, float, float, float]:
        cpu = time.process_time() - self._paused_cpu
        return frames, cpu, time.perf_counter() - self._paused_wall, resident_mib()

    def _judge(self, frames: int, act: Act) -> bool:
        """Note which goals are reached; true when all are."""
        if frames >= self._next_evaluation and "evaluation" not in self.reached:
            self._next_evaluation = frames - frames % self.goal.interval + self.goal.interval
            self.curve.append((frames, round(mean_return(self.env_id, act), 2)))
            if self.curve[-1][1] >= self.goal.threshold:
                self._note("evaluation")
        complete = self.goal.training and len(self.returns) == EPISODES
        if complete and sum(self.returns) / EPISODES >= self.goal.threshold:
            self._note("training")
        return len(self.reached) == 1 + self.goal.training

    def _note(self, goal: str) -> None:
        assert self._first is not None, "start() was not called"
        assert self._last is not None
        frames, cpu, wall, _ = (b - a for a, b in zip(self._first, self._last, strict=True))
        seconds = {"cpu_seconds": round(cpu, 3), "wall_seconds": round(wall, 3)}
        self.reached.setdefault(goal, {"frames": frames, **seconds})


def mean_return(
    env_id: str, act: Act, episodes: int = EPISODES, seed: int | list[int] = 10_000
) -> float:
    """Return the mean return of `act` over the first episode of each of `episodes` environments.

    The random state of the training run is left alone. `seed` is that of the first environment,
    from which those of the others follow, or has that of each.
    """
    if isinstance(seed, int) and gym.spec(env_id).vector_entry_point is not None:
        envs = gym.make_vec(env_id, episodes)
    else:
        envs = SyncVectorEnv([lambda: gym.make(env_id)] * episodes)
    observation, _ = envs.reset(seed=seed)
    returns = np.zeros(episodes)
    running = np.ones(episodes, dtype=bool)
    while running.any():
        observation, reward, terminated, truncated, _ = envs.step(act(observation))
        returns += reward * running
        running &= ~(terminated | truncated)
    envs.close()
    return float(returns.mean())


def resident_mib() -> float:
    """Return the memory this process holds now, in MiB (0 where the system does not tell)."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return 0.0
