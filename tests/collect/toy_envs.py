"""Environments whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class Counter(gym.Env[Any, Any]):
    """Counts the steps of an episode; ends after ``length`` of them.

    Observation: ``[start, step]``, where ``start`` is drawn from the seed. Reward: the step.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 5, draw: bool = True, render_mode: str | None = None) -> None:
        self.length = length
        self.draw = draw
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.start = 0.0
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start = float(self.np_random.integers(1000)) if self.draw else 0.0
        self.count = 0
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        terminated = self.count >= self.length
        return self._observe(), float(self.count), terminated, False, self._info()

    def _observe(self) -> Any:
        return np.array([self.start, self.count], np.float64)

    def _info(self) -> dict[str, Any]:
        return {}


class Masked(Counter):
    """Allows one of three actions at a time, step modulo 3, and says so in its info."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length, draw=False)
        self.action_space = spaces.Discrete(3)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action == self.count % 3, "a forbidden action"
        return super().step(action)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(3, dtype=np.int8) == self.count % 3}


class Told(Counter):
    """Has nested dicts, text and arrays in its info."""

    def _info(self) -> dict[str, Any]:
        return {"parts": {"count": float(self.count)}, "text": "a", "array": np.ones(3)}


class Nested(Counter):
    """A dict observation with every kind of leaf, and a MultiDiscrete action."""

    def __init__(self, length: int = 3) -> None:
        super().__init__(length)
        self.action_space = spaces.MultiDiscrete([2, 3])
        self.observation_space = spaces.Dict(
            {
                "inner": spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8)}),
                "level": spaces.Discrete(10, start=3),
                "pair": spaces.MultiDiscrete([4, 5]),
                "switches": spaces.MultiBinary(2),
            }
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return super().step(action)

    def _observe(self) -> Any:
        return {
            "inner": {"image": np.full((2, 2), self.count, np.uint8)},
            "level": 3 + self.count,
            "pair": np.array([self.count, 4]),
            "switches": np.array([0, 1], np.int8),
        }


class Echo(gym.Env[Any, Any]):
    """Shows the action it was given; never ends."""

    def __init__(self, action_space: gym.Space[Any], size: int) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        observation = np.broadcast_to(action, self.observation_space.shape).astype(np.float32)
        return observation, 0.0, False, False, {}


class Opaque(Counter):
    """Shows what all actions and its generator have added up to."""

    def __init__(self, length: int = 50) -> None:
        super().__init__(length)
        self.total = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.total = 0.0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.total += float(action) + float(self.np_random.random())
        return super().step(action)

    def _observe(self) -> Any:
        return np.array([self.total, self.count], np.float64)


class Careless(Counter):
    """Draws from a generator that reset does not seed, so that no episode can be repeated."""

    def __init__(self) -> None:
        super().__init__(length=50)
        self.generator = np.random.default_rng(0)
        self.total = 0.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.total += float(self.generator.random())
        return super().step(action)

    def _observe(self) -> Any:
        return np.array([self.total, self.count], np.float64)


class VectorCounter(gym.vector.VectorEnv[Any, Any, Any]):
    """`Counter`, vectorised by hand: all draw their start from one generator."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int = 1, length: int = 5, max_episode_steps: int | None = None
    ) -> None:
        self.num_envs = num_envs
        self.length = length
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.start = np.zeros(num_envs)
        self.count = np.zeros(num_envs, np.int64)
        self.finished = np.zeros(num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.start = self.np_random.integers(1000, size=self.num_envs).astype(float)
        self.count[:] = 0
        self.finished[:] = False
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._begin(self.finished)
        fresh = self.finished
        self.count[~fresh] += 1
        self.finished = (self.count >= self.length) & ~fresh
        reward = np.where(fresh, 0.0, self.count)
        return self._observe(), reward, self.finished, np.zeros_like(fresh), {}

    def _begin(self, which: Any) -> None:
        if which.any():
            self.start[which] = self.np_random.integers(1000, size=which.sum())
            self.count[which] = 0

    def _observe(self) -> Any:
        return np.stack([self.start, self.count], -1)


class SameStepCounter(VectorCounter):
    """Resets itself within the step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.count += 1
        finished = self.count >= self.length
        reward = self.count.astype(float)
        info: dict[str, Any] = {}
        if finished.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(finished):
                final[i] = self._observe()[i]
            info = {"final_obs": final, "_final_obs": finished}
            self._begin(finished)
        return self._observe(), reward, finished, np.zeros_like(finished), info


class DisabledCounter(VectorCounter):
    """Resets only those it is told to."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if options is None:
            return super().reset(seed=seed)
        self._begin(options["reset_mask"])
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.finished[:] = False
        return super().step(actions)


def recurrent(features: int = 2, size: int = 3) -> Any:
    """A policy with hidden states; the sign of its first feature is the action."""
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import GRUModule

    rnn = GRUModule(features, hidden_size=size, in_key="observation", out_key="embedding")
    head = TensorDictModule(lambda x: (x[:, 0] > 0).long(), ["embedding"], ["action"])
    return TensorDictSequential(rnn, head)
