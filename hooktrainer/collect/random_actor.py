"""Random actions: instead of a policy, or before the policy has its turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from ..base.space_parts import MASK
from .action_format import AnyActionFormat, RandomActions
from .actors import Actor, SomeEnvs
from .buffers import OutputBuffers, StepBuffers
from .group import random_action_seed
from .snapshot import dumps, loads
from .spaces import Array


class RandomActor:
    """An `Actor` without a policy.

    Args:
        buffers: Where the observations are; of interest is only an action mask among them.
        action_format: The format of the actions.
        num_envs: Number of environments.
        horizon: Steps of a rollout.
        seed: The run's seed.
        first_env: Index of the first environment among all those of the run.
    """

    def __init__(
        self,
        buffers: StepBuffers,
        action_format: AnyActionFormat,
        num_envs: int,
        horizon: int,
        seed: int,
        first_env: int = 0,
    ) -> None:
        self._actions = RandomActions(action_format, num_envs, random_action_seed(seed, first_env))
        self._outputs = OutputBuffers(num_envs, horizon)
        dtype = action_format.dtype
        self._outputs.allocate({"action": np.zeros((num_envs, *action_format.shape), dtype)})
        keys = [leaf.key for leaf in buffers.leaves]
        self._masks = buffers.observation[keys.index((MASK,))] if (MASK,) in keys else None

    @property
    def is_laid_out(self) -> bool:
        """Always: the outputs are the actions."""
        return True

    def act(self, t: int) -> Array:
        """Actions drawn from the action space, among those the mask allows."""
        actions = self._actions.draw(None if self._masks is None else self._masks[t])
        self._outputs.write(t, {"action": actions})
        return actions

    def skip(self, t: int) -> None:
        """Nothing is carried from step to step."""

    def begin(self, envs: SomeEnvs) -> None:
        """Nothing is carried from step to step."""

    def tensors(self, blank: bool = False) -> dict[NestedKey, torch.Tensor]:
        """The actions of this rollout, ``[num_envs, time, ...]``."""
        return self._outputs.tensors(blank)

    def state_dict(self) -> dict[str, Any]:
        """The state of the generators."""
        return {"generators": [dumps(each) for each in self._actions.generators]}

    def check(self, state_dict: dict[str, Any]) -> None:
        """Nothing to check: a generator is a generator."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the generator."""
        for saved, own in zip(state_dict["generators"], self._actions.generators, strict=True):
            loads(saved, own)


class WarmUp:
    """Random actions in batches that look like the policy's.

    Everything else the policy would have written is zero, so that batches before and after have
    the same keys.

    Args:
        policy: The actor whose turn comes later.
        random: The actor that draws.
    """

    def __init__(self, policy: Actor, random: Actor) -> None:
        self._policy = policy
        self._random = random

    def act(self, t: int) -> torch.Tensor | Array:
        """Actions drawn from the action space."""
        self._policy.skip(t)
        return self._random.act(t)

    def begin(self, envs: SomeEnvs) -> None:
        """Note that these environments are at the start of an episode."""
        self._policy.begin(envs)

    def tensors(self) -> dict[NestedKey, torch.Tensor]:
        """The random actions, and zeros for what the policy would have written."""
        tensors = self._policy.tensors(blank=True)
        tensors["action"].copy_(self._random.tensors()["action"])
        return tensors
