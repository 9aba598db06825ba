"""What a policy plays in: an environment of one agent or of several, stepped in one manner."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .interface import MASK

if TYPE_CHECKING:
    import gymnasium as gym


class GymStepper:
    """An environment of Gymnasium.

    Args:
        env: The environment.
        frame_skip: How often each action is repeated.
    """

    def __init__(self, env: gym.Env[Any, Any], frame_skip: int) -> None:
        self._env = env
        self._frame_skip = frame_skip
        self.observation: Any = None
        self.mask: Any = None

    def reset(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self.observation, info = self._env.reset(seed=seed)
        self.mask = info.get(MASK)

    def step(self, action: Any) -> tuple[float, bool]:
        """Take an action as often as it is repeated, or until the episode ends."""
        total = 0.0
        for _ in range(self._frame_skip):
            step = self._env.step(_own(action))
            self.observation, reward, terminated, truncated, info = step
            total += float(reward)
            if terminated or truncated:
                break
        self.mask = info.get(MASK)
        return total, bool(terminated or truncated)

    def check(self, action: Any) -> None:
        """Refuse what no environment with these actions takes."""
        _check(action, self._env.action_space)


class ParallelStepper:
    """A parallel environment of PettingZoo. The reward is the mean over all its agents.

    Args:
        env: The environment.
        name: What it is called in messages.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._env = env
        self._name = name
        self.observation: Any = None
        self.mask: Any = None

    def reset(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self._look(*self._env.reset(seed=seed))
        if not self._env.agents:
            raise ConfigError(f"{self._name} has no agents after reset().")

    def step(self, action: Any) -> tuple[float, bool]:
        """Take the actions of all agents that are there; one that has left counts 0."""
        from ..collect.agents.pettingzoo_env import reward_of

        acted = list(self._env.agents)
        chosen = {agent: _own(action[agent]) for agent in acted}
        seen, rewards, _, _, infos = self._env.step(chosen)
        self._look(seen, infos)
        total = sum(reward_of(rewards, agent, self._name) for agent in acted)
        return total / len(self._env.possible_agents), not self._env.agents

    def check(self, action: Any) -> None:
        """Refuse what no environment with these actions takes."""
        for agent in self._env.agents:
            if agent not in action:
                raise ConfigError(
                    f"the policies have no action for {agent!r:.80}: they are not those that were "
                    "trained in this environment."
                )
            _check(action[agent], self._env.action_space(agent))

    def _look(self, seen: Any, infos: Any) -> None:
        there = list(self._env.agents)
        self.observation = {agent: seen[agent] for agent in there}
        self.mask = {
            agent: infos[agent][MASK] for agent in there if MASK in (infos.get(agent) or {})
        }


def stepper_of(env: Any, frame_skip: int, name: str) -> GymStepper | ParallelStepper:
    """Take an environment of Gymnasium, or a parallel one of PettingZoo."""
    if hasattr(env, "possible_agents"):
        return ParallelStepper(env, name)
    return GymStepper(env, frame_skip)


def _check(action: Any, space: gym.Space[Any]) -> None:
    """Refuse what no environment with these actions takes; bounds of numbers are its own affair.

    Raises:
        ConfigError: If it is so.
    """
    if not _fits(action, space):
        shown = action.tolist() if hasattr(action, "tolist") else action
        raise ConfigError(
            f"the policy's action {reprlib.repr(shown)} is none of the environment's "
            f"({space}): it is not the one that the policy was trained in."
        )


def _fits(action: Any, space: gym.Space[Any]) -> bool:
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Box):
        return getattr(action, "shape", None) == space.shape
    if isinstance(space, Dict):
        keys = space.spaces.keys()
        return (
            isinstance(action, dict)
            and action.keys() == keys
            and all(_fits(action[key], space[key]) for key in keys)
        )
    if isinstance(space, Tuple):
        return (
            isinstance(action, tuple)
            and len(action) == len(space)
            and all(map(_fits, action, space.spaces))
        )
    return bool(space.contains(action))


def _own(action: Any) -> Any:
    """An action that the environment may keep: Python integers, and arrays of its own."""
    if isinstance(action, dict):
        return {key: _own(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(_own(part) for part in action)
    return action.item() if action.ndim == 0 else action.copy()
