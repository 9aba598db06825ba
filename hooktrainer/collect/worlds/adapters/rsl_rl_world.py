"""`RslRlWorld`: a ``VecEnv`` of rsl_rl, such as those of Isaac Lab and mjlab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDictBase

from ....base.space_parts import CRITIC, POLICY
from ....errors import ConfigError
from ..tensor_world import Observations, Outcome
from .foreign_world import ForeignWorld, find, name_of, numbers_in, unbounded

_ACTOR: Final = "actor"
_TIME_OUTS: Final = "time_outs"


class RslRlWorld(ForeignWorld):
    """A ``VecEnv`` of rsl_rl as a `TensorWorld`: Isaac Lab's, mjlab's and legged_gym's.

    Supports all versions: observation groups in a TensorDict (from 3.0), a tensor with groups in
    ``extras["observations"]`` (2.x), a tensor with ``get_privileged_observations`` (1.x). Final
    observations are hidden: `Outcome.final` is ``None``. ``extras["time_outs"]`` are truncations,
    all other ends terminations. The log is ``extras["log"]``, or else ``extras["episode"]``.

    Args:
        env: The environment.
        obs_groups: As in rsl_rl's configuration, groups by set, such as
            ``{"actor": ["policy", "scan"], "critic": ["critic"]}``; several groups become entries.
            By default the policy reads ``"policy"`` or ``"actor"``, and value networks
            ``"critic"``.
        random_episode_lengths: Whether the first episodes start at random lengths, as with
            ``init_at_random_ep_len``, so that they do not all end at once.

    Raises:
        ConfigError: If an attribute or a group is missing.
    """

    def __init__(
        self,
        env: Any,
        *,
        obs_groups: Mapping[str, Sequence[str]] | None = None,
        random_episode_lengths: bool = False,
    ) -> None:
        name = name_of(env)
        self._env = env
        self.simulator = getattr(env, "unwrapped", env)
        groups = self._observed(env.get_observations())
        self._groups = _resolved(name, groups, obs_groups)
        sets = self._sets(groups)
        self._is_plain = list(sets) == [POLICY]
        observed = {key: unbounded(value, batch_dims=1) for key, value in sets.items()}
        self._random_lengths = self._lengths_are_due = random_episode_lengths
        self._generator = torch.Generator()
        limit = getattr(env, "clip_actions", None)
        high = np.inf if limit is None else float(limit)
        super().__init__(
            name,
            int(env.num_envs),
            env.device,
            observed[POLICY] if self._is_plain else spaces.Dict(observed),
            spaces.Box(-high, high, (int(env.num_actions),)),
            lost="rsl_rl's VecEnv saves nothing, its random numbers and curricula included",
        )

    def _start_over(self, seed: int) -> None:
        self._generator.manual_seed(seed)
        if callable(seeds := getattr(self._env, "seed", None)):
            seeds(seed)
        self._lengths_are_due = self._random_lengths

    def reset(self) -> Observations:
        """Start the next episode of every environment.

        A ``VecEnv`` without ``reset`` continues its present episodes.
        """
        env = self._env
        reset = getattr(env, "reset", None) or getattr(getattr(env, "env", None), "reset", None)
        if callable(reset):
            reset()
        if self._lengths_are_due:
            self._lengths_are_due = False
            lengths = env.episode_length_buf
            uniform = torch.rand(lengths.shape, generator=self._generator).to(lengths.device)
            env.episode_length_buf = (uniform * env.max_episode_length).to(lengths.dtype)
        return self._leaves(self._observed(env.get_observations()))

    def step(self, actions: torch.Tensor) -> Outcome:
        observed, *more, reward, dones, extras = self._env.step(actions)
        done = dones.bool()
        truncated = torch.zeros_like(done)
        if _TIME_OUTS in extras:
            truncated = extras[_TIME_OUTS].bool().to(done.device) & done
        log = extras.get("log", extras.get("episode"))
        return Outcome(
            observation=self._leaves(self._observed((observed, *more, extras))),
            reward=reward,
            terminated=done & ~truncated,
            truncated=truncated,
            log=dict(numbers_in(log, self.num_envs, self.device)),
        )

    def close(self) -> None:
        if callable(close := getattr(self._env, "close", None)):
            close()

    def _observed(self, given: Any) -> dict[str, Any]:
        """The groups of a result of ``get_observations`` or ``step``, in any version."""
        parts = given if isinstance(given, tuple) else (given,)
        first = parts[0]
        if isinstance(first, TensorDictBase | Mapping):
            return dict(first.items())
        groups: dict[str, Any] = {POLICY: first}
        extras = parts[-1] if isinstance(parts[-1], Mapping) else {}
        privileged = parts[1] if len(parts) == 3 else None  # as 1.x has it
        if len(parts) == 1 and callable(ask := find(self._env, "get_privileged_observations")):
            privileged = ask()
        if privileged is not None:
            groups[CRITIC] = privileged
        return groups | dict(extras.get("observations", {}))

    def _sets(self, groups: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: groups[names[0]] if len(names) == 1 else {name: groups[name] for name in names}
            for key, names in self._groups.items()
        }

    def _leaves(self, groups: Mapping[str, Any]) -> Observations:
        sets = self._sets(groups)
        return self._entries(sets[POLICY] if self._is_plain else sets)


def _resolved(
    name: str, groups: Mapping[str, Any], given: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    if given is None:
        own = next((key for key in (POLICY, _ACTOR) if key in groups), POLICY)
        given = {POLICY: [own]} | ({CRITIC: [CRITIC]} if CRITIC in groups else {})
    sets = {POLICY if key == _ACTOR else key: list(names) for key, names in given.items()}
    unknown = [one for names in sets.values() for one in names if one not in groups]
    if POLICY not in sets or sets.keys() - {POLICY, CRITIC} or unknown:
        raise ConfigError(
            f"obs_groups={dict(given)}: {name} has the groups {', '.join(groups)}. Pass obs_groups="
            "{'actor': [...]} to RslRlWorld, and 'critic' if values see something else."
        )
    return sets
