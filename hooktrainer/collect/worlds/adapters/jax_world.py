"""`JaxWorld`: vectorizes an environment written in JAX; tensors are exchanged through DLPack."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.utils.dlpack import from_dlpack

from ....base.checks import check_count
from ....base.lazy import import_optional
from ....base.space_parts import CRITIC, POLICY
from ....errors import ConfigError, StateMismatchError
from ....store.rng import seed_of
from ..functional_world import EpisodicWorld
from ..tensor_world import Observations, Outcome
from .foreign_world import gymnasium_space, leaf_getter, unbounded

Step = tuple[tuple[Any, Any], Any, Any, Any, dict[str, Any]]
"""State and observation, reward, whether terminated, whether truncated, and the log."""
_RESET = 0  # index of the reset among an episode's random keys; steps count from 1


class JaxWorld(EpisodicWorld):
    """Environments written in JAX as a `TensorWorld`: vectorized, compiled, never copied.

    Tensors and arrays share memory through DLPack on the same device, and neither side waits for
    the other. Time limits and resets are part of the compiled step, so true final observations are
    known. An episode is a function of the seed, the environment's index and its own index; a
    running one is its state, so a resumed run continues exactly.

    Raises:
        MissingPackageError: If JAX is not installed.
        ConfigError: If JAX has no such device.
    """

    def __init__(
        self,
        env: GymnaxEnv | BraxEnv,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        first_env: int = 0,
    ) -> None:
        check_count("num_envs", num_envs)
        self.name = env.name
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.action_space = env.action_space
        self._env = env
        self._first_env = first_env
        self._jax = jax = import_optional("jax", self.name, "jax")
        self._place = _device_of(jax, self.device)
        key = jax.random.PRNGKey(0)
        self.observation_space = env.observation_space(jax.eval_shape(env.reset, key)[1])
        self._entries = leaf_getter(self.observation_space)
        self._begin = jax.jit(jax.vmap(self._begin_one))
        self._advance = jax.jit(jax.vmap(self._advance_one))
        self.seed(0)

    # -- one environment, in JAX -----------------------------------------------------------------

    def _begin_one(self, key: Any, episode: Any) -> tuple[dict[str, Any], Any]:
        start = self._env.reset(self._key(key, episode, _RESET))
        carry = {"key": key, "episode": episode, "length": episode * 0, "state": start[0]}
        if isinstance(self._env, BraxEnv):
            carry["start"] = start
        return carry, start[1]

    def _advance_one(self, carry: dict[str, Any], action: Any) -> tuple[dict[str, Any], Any]:
        env, where = self._env, self._jax.numpy.where
        key, episode, length = carry["key"], carry["episode"], carry["length"] + 1
        last, reward, terminated, truncated, log = env.step(
            self._key(key, episode, length), carry["state"], action
        )
        if env.max_episode_steps is not None:
            truncated = truncated | (length >= env.max_episode_steps)
        done = terminated | truncated
        episode = where(done, episode + 1, episode)
        if isinstance(env, BraxEnv):
            following = env.restart(carry["start"], last[0])
        else:
            following = env.reset(self._key(key, episode, _RESET))
        state, observed = self._jax.tree.map(partial(where, done), following, last)
        length = where(done, length * 0, length)
        carry = carry | {"episode": episode, "length": length, "state": state}
        return carry, (observed, last[1], (reward, terminated, truncated), log)

    def _key(self, key: Any, episode: Any, step: Any) -> Any:
        fold = self._jax.random.fold_in
        return fold(fold(key, episode), step)

    # -- TensorWorld -----------------------------------------------------------------------------

    def reset(self) -> Observations:
        self.carry, observed = self._begun_after(self.episodes)
        return self._tensors(observed)

    def _begun_after(self, episodes: list[int]) -> Any:
        jax, first = self._jax, self._first_env
        with jax.default_device(self._place):
            fold = partial(jax.random.fold_in, jax.random.PRNGKey(seed_of(self._seed) >> 1))
            indices = jax.numpy.arange(first, first + self.num_envs)
            following = jax.numpy.asarray([one + 1 for one in episodes], dtype="int32")
            return self._begin(jax.vmap(fold)(indices), following)

    def step(self, actions: torch.Tensor) -> Outcome:
        if actions.dtype is torch.int64:
            actions = actions.to(torch.int32)  # JAX's own integers
        given = self._jax.dlpack.from_dlpack(actions.contiguous())
        self.carry, (observed, final, scalars, log) = self._advance(self.carry, given)
        reward, terminated, truncated = (from_dlpack(value) for value in scalars)
        logged = {key: x for key, x in log.items() if x.shape == (self.num_envs,)}
        return Outcome(
            self._tensors(observed),
            reward.float(),
            terminated.bool(),
            truncated.bool(),
            self._tensors(final),
            {key: from_dlpack(value) for key, value in logged.items()},
        )

    def _tensors(self, observed: Any) -> Observations:
        return {key: from_dlpack(value) for key, value in self._entries(observed).items()}

    def _running(self) -> list[int]:
        return [int(episode) for episode in np.asarray(self.carry["episode"])]

    def _saved(self) -> dict[str, Any]:
        leaves = self._jax.tree.leaves(self.carry)
        return {"arrays": [np.asarray(leaf).copy() for leaf in leaves]}

    def _restore(self, state: Mapping[str, Any]) -> None:
        jax = self._jax
        own, tree = jax.tree.flatten(self._begun_after(self._begun)[0])
        saved, wanted = _forms(state["arrays"]), _forms(own)
        if saved != wanted:
            raise StateMismatchError(
                f"The saved state of {self.name} has the arrays {saved}, this one {wanted}."
            )
        arrays = [  # NumPy saves JAX's own types, such as bfloat16, as bytes
            np.array(array).view(np.asarray(leaf).dtype)
            for array, leaf in zip(state["arrays"], own, strict=True)
        ]
        self.carry = jax.tree.unflatten(tree, [jax.device_put(x, self._place) for x in arrays])


def _forms(arrays: Any) -> list[str]:
    return [f"{x.dtype.kind}{x.dtype.itemsize}{list(x.shape)}" for x in map(np.asarray, arrays)]


def _device_of(jax: Any, device: torch.device) -> Any:
    try:
        found = jax.devices("gpu" if device.type == "cuda" else device.type)
        return found[device.index or 0]
    except (RuntimeError, IndexError) as error:
        raise ConfigError(
            f"JAX has no device {str(device)!r} ({str(error).splitlines()[0]}): install it with "
            "support for that, such as jax[cuda12], or train with device='cpu'."
        ) from None


class GymnaxEnv:
    """A gymnax environment with its parameters, which truncates episodes itself."""

    max_episode_steps: int | None = None

    def __init__(self, env: Any, params: Any = None) -> None:
        self.name = str(getattr(env, "name", type(env).__name__))
        self._env = env
        self._params = env.default_params if params is None else params
        self.action_space = gymnasium_space(env.action_space(self._params), self.name)

    def observation_space(self, shapes: Any) -> spaces.Space[Any]:
        return gymnasium_space(self._env.observation_space(self._params), self.name)

    def reset(self, key: Any) -> tuple[Any, Any]:
        observed, state = self._env.reset_env(key, self._params)
        return state, observed

    def step(self, key: Any, state: Any, action: Any) -> Step:
        env, params = self._env, self._params
        observed, state, reward, done, info = env.step_env(key, state, action, params)
        terminated, truncated = done, done & ~done
        if hasattr(env, "is_truncated"):  # from gymnax 1.0
            truncated = env.is_truncated(state, params)
        elif hasattr(params, "max_steps_in_episode"):  # earlier versions have one flag for both
            endless = params.replace(max_steps_in_episode=2**31 - 1)
            terminated = env.is_terminal(state, endless)
            truncated = done & ~terminated
        log = {key: value for key, value in info.items() if key != "discount"}
        return (state, observed), reward, terminated, truncated, log


class BraxEnv:
    """An unwrapped environment of Brax or MuJoCo Playground.

    As in Brax's training, an environment starts all its episodes in the state of its first, but its
    random numbers continue. Of several observations ``"privileged_state"`` becomes the critic's and
    ``"state"`` the policy's.
    """

    def __init__(self, env: Any, max_episode_steps: int | None = 1000) -> None:
        self.name = type(getattr(env, "unwrapped", env)).__name__
        kind = type(env).__name__
        if kind.endswith(("VmapWrapper", "EpisodeWrapper", "AutoResetWrapper")):
            raise ConfigError(
                f"{self.name} is wrapped in {kind} already: give it bare, as "
                "brax.envs.get_environment or registry.load of Playground make it."
            )
        self._env = env
        self.max_episode_steps = max_episode_steps
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (int(env.action_size),))

    def observation_space(self, shapes: Any) -> spaces.Space[Any]:
        return unbounded(shapes)

    def reset(self, key: Any) -> tuple[Any, Any]:
        state = self._env.reset(key)
        return state, _groups(state.obs)

    def step(self, key: Any, state: Any, action: Any) -> Step:
        state = self._env.step(state, action)
        terminated = state.done > 0.5
        never, log = terminated & ~terminated, dict(state.metrics)
        return (state, _groups(state.obs)), state.reward, terminated, never, log

    def restart(self, start: tuple[Any, Any], state: Any) -> tuple[Any, Any]:
        """The first state, with the random numbers of the last, and its observation."""
        first, observed = start
        if "rng" in state.info:
            first = first.replace(info={**first.info, "rng": state.info["rng"]})
        return first, observed


def _groups(observed: Any) -> Any:
    if not isinstance(observed, Mapping):
        return observed
    names = {"privileged_state": CRITIC, "state": POLICY}
    return {names.get(key, key): value for key, value in observed.items()}
