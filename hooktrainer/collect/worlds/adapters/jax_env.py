"""`JaxEnv`: one environment written in JAX as pure functions, and those of gymnax and Brax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from ....base.space_parts import CRITIC, POLICY
from ....errors import ConfigError

NEVER: Final = 2**31 - 1
"""A number of steps that no episode has."""


class JaxOutcome(NamedTuple):
    """What a step of one environment gives, all arrays of JAX.

    Attributes:
        state: What the next step needs.
        observation: What the step led to.
        reward: A number.
        terminated: Whether it led to a terminal state.
        truncated: Whether a limit of the environment's own breaks the episode off.
        log: Numbers by name.
    """

    state: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    log: dict[str, Any]


class JaxEnv(Protocol):
    """One environment as pure functions of JAX.

    Attributes:
        name: What it is called in messages.
        action_space: Its action space.
        keeps_start: Whether each environment begins all its episodes as its first one, since a
            reset costs more than a step.
        max_episode_steps: After how many steps an episode is truncated; ``None`` where the
            environment does so itself.
    """

    name: str
    action_space: spaces.Space[Any]
    keeps_start: bool
    max_episode_steps: int | None

    def observation_space(self, shapes: Any) -> spaces.Space[Any]:
        """The observation space, given the shapes and types of what `reset` observes."""

    def reset(self, key: Any) -> tuple[Any, Any]:
        """The state in which an episode begins, and what is observed in it."""

    def step(self, key: Any, state: Any, action: Any) -> JaxOutcome:
        """What an action leads to; nothing is reset."""

    def resumed(self, start: Any, state: Any) -> Any:
        """The state in which the next episode begins: ``start``, where ``state`` ended the last."""


class GymnaxEnv:
    """An environment of gymnax with its parameters; fulfils `JaxEnv`.

    Args:
        env: The environment.
        params: Its parameters; by default its own.
    """

    keeps_start = False
    max_episode_steps: int | None = None

    def __init__(self, env: Any, params: Any = None) -> None:
        self.name = str(getattr(env, "name", type(env).__name__))
        self._env = env
        self._params = env.default_params if params is None else params
        self.action_space = _space(env.action_space(self._params), self.name)

    def observation_space(self, shapes: Any) -> spaces.Space[Any]:
        """As gymnax says."""
        return _space(self._env.observation_space(self._params), self.name)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """As ``reset_env`` has it."""
        observed, state = self._env.reset_env(key, self._params)
        return state, observed

    def step(self, key: Any, state: Any, action: Any) -> JaxOutcome:
        """As ``step_env`` has it, time limits told from terminal states."""
        env, params = self._env, self._params
        observed, state, reward, done, info = env.step_env(key, state, action, params)
        if hasattr(env, "is_truncated"):  # from gymnax 1.0
            terminated, truncated = done, env.is_truncated(state, params)
        elif hasattr(params, "max_steps_in_episode"):  # before, one flag said both
            endless = params.replace(max_steps_in_episode=NEVER)
            terminated = env.is_terminal(state, endless)
            truncated = done & ~terminated
        else:
            terminated, truncated = done, done & ~done
        log = {key: value for key, value in info.items() if key != "discount"}
        return JaxOutcome(state, observed, reward, terminated, truncated, log)

    def resumed(self, start: Any, state: Any) -> Any:
        """Episodes begin anew; nothing is kept."""
        return start


class BraxEnv:
    """A bare environment of Brax or MuJoCo Playground; fulfils `JaxEnv`.

    As in their own training an environment begins all its episodes in the state it began its first
    in, but its random numbers go on. Of several observations ``"privileged_state"`` is what values
    see, and ``"state"`` what the policy sees.

    Args:
        env: The environment, not wrapped.
        max_episode_steps: The length at which an episode is truncated, as ``episode_length`` there.

    Raises:
        ConfigError: If it is wrapped for training already.
    """

    keeps_start = True

    def __init__(self, env: Any, max_episode_steps: int | None = 1000) -> None:
        self.name = type(getattr(env, "unwrapped", env)).__name__
        inner = env
        while inner is not None:
            kind = type(inner).__name__
            if kind.endswith(("VmapWrapper", "EpisodeWrapper", "AutoResetWrapper")):
                raise ConfigError(
                    f"{self.name} is wrapped in {kind} already, which is done here: give it bare, "
                    "as brax.envs.get_environment or registry.load of Playground make it."
                )
            inner = vars(inner).get("env")
        self._env = env
        self.max_episode_steps = max_episode_steps
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (int(env.action_size),))

    def observation_space(self, shapes: Any) -> spaces.Space[Any]:
        """Boxes without bounds, of the shapes that are observed."""
        if isinstance(shapes, Mapping):
            return spaces.Dict({key: self.observation_space(x) for key, x in shapes.items()})
        if np.dtype(shapes.dtype) == np.uint8:
            return spaces.Box(0, 255, tuple(shapes.shape), np.uint8)
        return spaces.Box(-np.inf, np.inf, tuple(shapes.shape))

    def reset(self, key: Any) -> tuple[Any, Any]:
        """As there."""
        state = self._env.reset(key)
        return state, _groups(state.obs)

    def step(self, key: Any, state: Any, action: Any) -> JaxOutcome:
        """As there; ``done`` is a terminal state."""
        state = self._env.step(state, action)
        terminated = state.done > 0.5
        log = dict(state.metrics)
        return JaxOutcome(
            state, _groups(state.obs), state.reward, terminated, terminated & ~terminated, log
        )

    def resumed(self, start: Any, state: Any) -> Any:
        """The first state, with random numbers that were not used yet."""
        if "rng" not in state.info:
            return start
        return start.replace(info={**start.info, "rng": state.info["rng"]})


def _groups(observed: Any) -> Any:
    if not isinstance(observed, Mapping):
        return observed
    names = {"privileged_state": CRITIC, "state": POLICY}
    return {names.get(key, key): value for key, value in observed.items()}


def _space(space: Any, name: str) -> spaces.Space[Any]:
    """Gymnasium's space for one of gymnax's, told by what it has."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if isinstance(inner := getattr(space, "spaces", None), Mapping):
        return spaces.Dict({key: _space(part, name) for key, part in inner.items()})
    if hasattr(space, "low"):
        dtype: Any = np.dtype(space.dtype)
        low, high = (np.broadcast_to(np.asarray(x), space.shape) for x in (space.low, space.high))
        if dtype.kind == "f":  # the largest number there is stands for no bound
            far = np.finfo(np.float32).max
            low = np.where(low <= -far, -np.inf, low)
            high = np.where(high >= far, np.inf, high)
            dtype = np.dtype(np.float32)
        return spaces.Box(low.astype(dtype), high.astype(dtype), tuple(space.shape), dtype)
    raise ConfigError(
        f"{name} has a space {type(space).__name__}: Discrete, Box and Dict of gymnax are taken."
    )
