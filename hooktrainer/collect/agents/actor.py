"""How the policies of all agents are asked for actions, one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key

from ...base.space_parts import MASK
from ...errors import ConfigError
from .groups import AgentGroup
from .world import Entries


class AgentsActor:
    """Asks a policy for the actions of all agents, and records what else it writes.

    Args:
        policy: An object with ``in_keys`` and ``act(*inputs)``, which returns a dict by key; if it
            has ``sample`` and ``complete`` as well, the first is called at every step and the other
            once for the whole batch. Or a TensorDict module.
        groups: The agents.
        num_envs: How many environments.
        device: Where the policy computes.

    Raises:
        ConfigError: If the policy has no ``in_keys``.
    """

    def __init__(
        self,
        policy: Any,
        groups: tuple[AgentGroup, ...],
        num_envs: int,
        device: torch.device,
    ) -> None:
        self._policy = policy
        self._groups = groups
        self._num_envs = num_envs
        self._device = device
        self._checked = False
        self._in_keys: list[NestedKey] = [unravel_key(key) for key in policy.in_keys]
        self._act = getattr(policy, "act", None)
        self._complete = getattr(policy, "complete", None)
        if self._complete is not None:
            self._act = policy.sample

    def act(self, entries: Entries) -> Entries:
        """What the policy writes for one step, ``[num_envs, ...]``; the actions among it."""
        if missing := [key for key in self._in_keys if key not in entries]:
            raise ConfigError(
                f"the policy reads {missing}, and the environments give {sorted(map(str, entries))}"
                "; set its in_keys."
            )
        inputs = {key: entries[key].to(self._device) for key in self._in_keys}
        if self._act is not None:
            outputs = {unravel_key(k): v for k, v in self._act(*inputs.values()).items()}
        else:
            outputs = self._call(inputs)
        if not self._checked:
            self._check(outputs)
            self._checked = True
        return outputs

    def complete(self, outputs: Entries) -> Entries:
        """What is recorded of all steps together, ``[num_envs, time, ...]``."""
        if self._complete is None:
            return outputs
        return {unravel_key(key): value for key, value in self._complete(outputs).items()}

    def _call(self, inputs: Entries) -> Entries:
        batch = TensorDict({}, [self._num_envs], device=self._device)
        for group in self._groups:
            batch[group.name] = TensorDict({}, [self._num_envs, len(group.agents)])
        for key, value in inputs.items():
            batch[key] = value
        written: TensorDictBase = self._policy(batch)
        return {
            unravel_key(key): value
            for key, value in written.items(True, True)
            if unravel_key(key) not in inputs
        }

    def _check(self, outputs: Entries) -> None:
        for group in self._groups:
            key = (group.name, "action")
            if key not in outputs:
                raise ConfigError(
                    f"The policy wrote {sorted(map(str, outputs))}; one key has to be {key}, the "
                    f"actions of {', '.join(group.agents)}."
                )
            given = tuple(outputs[key].shape)
            wanted = (self._num_envs, len(group.agents), *group.action_format.shape)
            if given != wanted:
                raise ConfigError(
                    f"The policy's {key} has shape {list(given)}; {self._num_envs} environments "
                    f"with {len(group.agents)} agents whose actions are {group.action_space} need "
                    f"{list(wanted)}."
                )


class RandomAgents:
    """Draws actions uniformly among those allowed, from a generator of its own.

    Args:
        groups: The agents.
        seed: Seed of the generator.
    """

    def __init__(self, groups: tuple[AgentGroup, ...], seed: int) -> None:
        self._groups = groups
        self.generator = torch.Generator().manual_seed(seed)

    def act(self, entries: Entries) -> Entries:
        """The actions of one step, ``(group, "action")``, ``[num_envs, agents, ...]``."""
        drawn: Entries = {}
        for group in self._groups:
            first = entries[group.keys[0]]
            mask = entries.get((group.name, MASK))
            action = self._draw(group, tuple(first.shape[:2]), mask)
            drawn[group.name, "action"] = action.to(first.device)
        return drawn

    def complete(self, outputs: Entries) -> Entries:
        """Nothing is added."""
        return outputs

    def _draw(
        self, group: AgentGroup, shape: tuple[int, ...], mask: torch.Tensor | None
    ) -> torch.Tensor:
        space = group.action_space
        if isinstance(space, spaces.Discrete):
            scores = self._uniform(*shape, int(space.n))
            return (scores if mask is None else scores.where(mask.cpu(), -1.0)).argmax(-1)
        if isinstance(space, spaces.MultiDiscrete):
            sizes = torch.as_tensor(np.asarray(space.nvec))
            scores = self._uniform(*shape, int(sizes.sum()))
            if mask is not None:
                scores = scores.where(mask.cpu(), -1.0)
            parts = torch.split(scores, sizes.tolist(), -1)
            return torch.stack([part.argmax(-1) for part in parts], -1)
        if isinstance(space, spaces.MultiBinary):
            return (self._uniform(*shape, *group.action_format.shape) < 0.5).to(torch.int64)
        assert isinstance(space, spaces.Box)  # of which ActionFormat has made sure
        low = torch.from_numpy(np.asarray(space.low)).float().clamp(-1e3, 1e3)
        high = torch.from_numpy(np.asarray(space.high)).float().clamp(-1e3, 1e3)
        return torch.lerp(low, high, self._uniform(*shape, *space.shape))

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator)
