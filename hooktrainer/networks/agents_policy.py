"""`AgentsPolicy`: the policies of groups of agents, which act together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase, unravel_key
from tensordict.nn import TensorDictModuleBase
from torch import nn

Entries = dict[NestedKey, torch.Tensor]


class AgentsPolicy(TensorDictModuleBase):
    """A policy for each group of agents: what it writes stands in the group's TensorDict.

    Args:
        policies: By the name of a group, its policy: anything with ``in_keys`` and ``act``, such as
            `Policy` or `QNetwork`. It reads entries ``[*batch, agents, ...]`` by their full keys,
            such as ``("agents", "observation")``, and returns ``"action"`` ``[*batch, agents,
            ...]``, which becomes ``("agents", "action")``.

    Examples:
        >>> policy = CategoricalPolicy(mlp(4, 2), in_keys=[("agents", "observation")])
        >>> sorted(AgentsPolicy({"agents": policy}).act(torch.zeros(8, 3, 4)))
        [('agents', 'action'), ('agents', 'action_log_prob')]
    """

    def __init__(self, policies: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.policies = nn.ModuleDict(policies)
        keys: list[NestedKey] = []
        self._places: dict[str, list[int]] = {}
        for name, policy in policies.items():
            own = [unravel_key(key) for key in _of(policy).in_keys]
            keys += [key for key in own if key not in keys]
            self._places[name] = [keys.index(key) for key in own]
        self.in_keys = keys
        self.out_keys = [
            (name, key) for name, policy in policies.items() for key in _of(policy).out_keys
        ]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write what all policies write, without gradient, and return ``tensordict``."""
        for key, value in self.act(*[tensordict.get(key) for key in self.in_keys]).items():
            tensordict.set(key, value)
        return tensordict

    def act(self, *inputs: torch.Tensor) -> Entries:
        """What the policies write, by group and key, without gradient.

        Args:
            *inputs: The entries ``in_keys``.
        """
        return self.complete(self.sample(*inputs))

    def sample(self, *inputs: torch.Tensor) -> Entries:
        """The half of `act` that has to be done at every step; see `Policy.sample`."""
        out: Entries = {}
        for name, policy in self.policies.items():
            own = [inputs[place] for place in self._places[name]]
            act = getattr(policy, "sample", None) or _of(policy).act
            out |= {(name, key): value for key, value in act(*own).items()}
        return out

    def complete(self, sample: Entries) -> Entries:
        """The other half, which can be done for all steps of a rollout at once."""
        out: Entries = {}
        for name, policy in self.policies.items():
            own = {key[1]: value for key, value in sample.items() if key[0] == name}
            complete = getattr(policy, "complete", None)
            made = own if complete is None else complete(own)
            out |= {(name, key): value for key, value in made.items()}
        return out


def _of(policy: Any) -> Any:
    return policy
