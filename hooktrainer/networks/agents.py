"""Networks for several agents, with separate or shared parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn
from torch.nn.functional import elu

from .head import Actor
from .layers import AgentLinear, arguments, mlp, takes_one
from .memory import Hidden, Memory, MemoryTrunk


class AgentMLP(nn.Module):
    """A multi-layer perceptron for each agent, with separate parameters; arguments as for `mlp`."""

    def __init__(
        self,
        agents: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (64, 64),
        activation_class: Callable[[], nn.Module] = nn.Tanh,
    ) -> None:
        super().__init__()
        linear = partial(AgentLinear, agents)
        self.layers = mlp(in_features, out_features, num_cells, activation_class, linear)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[*batch, agents, in_features]`` to ``[*batch, agents, out_features]``."""
        batch, last = x.shape[:-2], x.shape[-2:]
        out = self.layers(x.reshape(-1, *last).transpose(0, 1)).transpose(0, 1)
        return out.reshape(*batch, *out.shape[1:])


class AgentsMemory(Memory):
    """A memory of each agent of a group: hidden states are ``[agents, ...]``.

    The agents are further rows of one shared memory, or have one each. With ``leave``, the last
    feature of the input is 1 for an agent that acts. The hidden states of another one stay as they
    are: in a game of turns it remembers what it saw in its own turns, as a policy that is called
    for the agent in turn alone.

    Args:
        memories: One that the agents share, or one for each.
        agents: Number of agents.
        leave: Whether the last feature of the input marks the agents that act.
    """

    def __init__(self, memories: Sequence[Memory], agents: int, leave: bool = False) -> None:
        one = memories[0]
        hidden = {name: zeros.expand(agents, *zeros.shape) for name, zeros in one.hidden.items()}
        super().__init__(one.in_features + leave, one.out_features, hidden)
        self.memories: Any = nn.ModuleList(memories)
        self.leave = leave
        self._own = [slice(place, place + 1) for place in range(agents)]
        if len(memories) == 1:
            self._own = [slice(agents)]

    def step(self, x: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """One step of all agents, ``[batch, agents, in_features]``."""
        if not self.leave:
            return self._call(x, states)
        out, after = self._call(x[..., :-1], states)
        acts = x[..., -1] > 0
        return out, tuple(
            torch.where(acts.view(*acts.shape, *[1] * (new.ndim - 2)), new, old)
            for new, old in zip(after, states, strict=True)
        )

    def sequence(self, x: Tensor, is_init: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """All steps at once where all agents act; else one after another."""
        if self.leave:
            return super().sequence(x, is_init, states)
        out, after = self._call(x.transpose(1, 2), states, is_init)
        return out.transpose(1, 2), tuple(state.transpose(1, 2) for state in after)

    def _call(self, x: Tensor, states: Hidden, *is_init: Tensor) -> tuple[Tensor, Hidden]:
        """Call every memory with its agents as rows; ``x`` is ``[batch, agents, *time, ...]``."""
        found = []
        for memory, own in zip(self.memories, self._own, strict=True):
            rows, *hidden = (entry[:, own].flatten(0, 1) for entry in (x, *states))
            begins = [entry.repeat_interleave(x[:, own].shape[1], 0) for entry in is_init]
            called = memory.sequence if is_init else memory.step
            out, after = called(rows, *begins, tuple(hidden))
            found.append([entry.unflatten(0, (len(x), -1)) for entry in (out, *after)])
        out, *after = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return out, tuple(after)


class WithPresence(nn.Module):
    """An encoder that appends to its features whether the agent acts, for `AgentsMemory`."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self._joins = takes_one(encoder)

    def forward(self, *arrays: Tensor) -> Tensor:
        """Map what the encoder takes, and last the mask ``[*batch, agents]``."""
        *seen, acts = arrays
        features = self.encoder(*arguments(seen, self._joins))
        return torch.cat([features, acts.unsqueeze(-1).to(features.dtype)], -1)


class JointEncoder(nn.Module):
    """Encodes the observations of all agents and the global state.

    A part is an encoder, how many arrays it takes, and whether they are a group's, ``[*batch,
    agents, ...]``, or the whole environment's, ``[*batch, ...]``.
    """

    def __init__(self, parts: Sequence[tuple[nn.Module, int, bool]]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoder for encoder, _, _ in parts)
        self._parts = [(number, of_group) for _, number, of_group in parts]

    def forward(self, *arrays: Tensor) -> Tensor:
        """The concatenated features, ``[*batch, features]``."""
        found, start = [], 0
        for encoder, (number, of_group) in zip(self.encoders, self._parts, strict=True):
            features = encoder(*arrays[start : start + number])
            found.append(features.flatten(-2) if of_group else features)
            start += number
        return found[0] if len(found) == 1 else torch.cat(found, -1)


class CentralNetwork(nn.Module):
    """A network of all agents' observations, with an output for each agent of one group.

    ``network`` maps the encoder's features to ``[*batch, out_features]``, shared by the agents; or,
    as an `AgentMLP`, to ``[*batch, agents, out_features]``.
    """

    def __init__(self, encoder: JointEncoder, network: nn.Module, agents: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network
        self.agents = agents

    def forward(self, *arrays: Tensor) -> Tensor:
        """``[*batch, agents, out_features]``."""
        features = self.encoder(*arrays).unsqueeze(-2)
        if isinstance(self.network, AgentMLP):
            return self.network(features.expand(*features.shape[:-2], self.agents, -1))
        out = self.network(features)
        return out.expand(*out.shape[:-2], self.agents, -1)


class CentralQNetwork(nn.Module):
    """Values of all agents' actions, for each agent of one group (Lowe et al., 2017, MADDPG).

    Args:
        encoder: Of what all agents observe, or of the state.
        network: Maps its features and the joint action to ``[*batch, agents]``, or, as an
            `AgentMLP`, from ``[*batch, agents, ...]`` to ``[*batch, agents, 1]``.
        agents: Agents of the group.
        in_keys: Entries that the encoder reads.
        trunks: Memories of the policies; the encoder reads their features, after these entries.
    """

    def __init__(
        self,
        encoder: JointEncoder,
        network: nn.Module,
        agents: int,
        in_keys: Sequence[NestedKey],
        trunks: Sequence[MemoryTrunk] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.network = encoder, network
        self.agents, self.in_keys = agents, list(in_keys)
        self.trunks: Any = nn.ModuleList(trunks)

    def forward(self, actions: Tensor, *arrays: Tensor) -> Tensor:
        """Return ``[*batch, agents]`` of joint actions ``[*batch, features]`` and observations.

        The actions may have more dimensions at the front than the observations.
        """
        seen = self.encoder(*arrays)
        x = torch.cat([seen.expand(*actions.shape[:-1], -1), actions], -1)
        if isinstance(self.network, AgentMLP):
            each = x.unsqueeze(-2).expand(*x.shape[:-1], self.agents, -1)
            return self.network(each).squeeze(-1)
        return self.network(x)


# -- `AgentsPolicy`: the policies of groups of agents, which act together.

Entries = dict[NestedKey, Tensor]


class AgentsPolicy(Actor):
    """Combines the policies of groups of agents; outputs are nested under the group's name.

    Args:
        policies: A policy by group: a module with ``in_keys`` and ``act``, such as `Policy` or
            `QNetwork`. It reads entries ``[*batch, agents, ...]`` by their full keys, such as
            ``("agents", "observation")``, and returns ``"action"`` ``[*batch, agents, ...]``, which
            becomes ``("agents", "action")``.
    """

    def __init__(self, policies: Mapping[str, Any]) -> None:
        super().__init__()
        self.policies: Any = nn.ModuleDict(policies)
        keys: list[NestedKey] = []
        self._places: dict[str, list[int]] = {}
        for name, policy in policies.items():
            own = [unravel_key(key) for key in policy.in_keys]
            keys += [key for key in own if key not in keys]
            self._places[name] = [keys.index(key) for key in own]
        self.in_keys = keys
        self.out_keys = [
            _of(name, key) for name, policy in policies.items() for key in policy.out_keys
        ]

    def act(self, *inputs: Tensor) -> Entries:
        """Return all policies' entries for the entries ``in_keys``, without gradient."""
        return self._each("act", inputs)

    def sample(self, *inputs: Tensor) -> Entries:
        """The part of `act` that is needed at every step; see `Policy.sample`."""
        return self._each("sample", inputs)

    def _each(self, method: str, inputs: Sequence[Tensor]) -> Entries:
        out: Entries = {}
        for name, policy in self.policies.items():
            own = [inputs[place] for place in self._places[name]]
            called = getattr(policy, method, None) or policy.act
            out |= {_of(name, key): value for key, value in called(*own).items()}
        return out

    def complete(self, sample: Entries) -> Entries:
        """The rest of `act`, for all steps of a rollout at once."""
        out: Entries = {}
        for name, policy in self.policies.items():
            own = {key[1]: value for key, value in sample.items() if key[0] == name}
            complete = getattr(policy, "complete", None)
            made = own if complete is None else complete(own)
            out |= {(name, key): value for key, value in made.items()}
        return out


def _of(group: str, key: NestedKey) -> NestedKey:
    """The key of a group's entry; that of a hidden state is its own."""
    return key if key[0] == "next" else (group, key)


# -- Mixers: from the values of all agents' actions to the value of all of them together.


class SumMixer(nn.Module):
    """The sum of all agents' values (Sunehag et al., 2018, arXiv:1706.05296, VDN)."""

    def forward(self, values: Tensor) -> Tensor:
        """Map ``[*batch, agents, 1]`` to ``[*batch, 1]``."""
        return values.sum(-2)


class MonotonicMixer(nn.Module):
    """Mixes values by a network whose weights are positive functions of the state (QMIX).

    Rashid et al., 2018, arXiv:1803.11485. The best joint action consists of the agents' best
    actions. ``cells`` are the units of the hidden layer.
    """

    def __init__(self, state_features: int, agents: int, cells: int = 32) -> None:
        super().__init__()
        self.agents = agents
        self.cells = cells
        self.hidden_weight = nn.Linear(state_features, agents * cells)
        self.hidden_bias = nn.Linear(state_features, cells)
        self.output_weight = nn.Linear(state_features, cells)
        self.output_bias = nn.Sequential(
            nn.Linear(state_features, cells), nn.ReLU(), nn.Linear(cells, 1)
        )

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Map values ``[*batch, agents, 1]`` of actions, and the state, to ``[*batch, 1]``."""
        weight = self.hidden_weight(state).abs().unflatten(-1, (self.agents, self.cells))
        hidden = elu((values * weight).sum(-2) + self.hidden_bias(state))
        mixed = (hidden * self.output_weight(state).abs()).sum(-1, keepdim=True)
        return mixed + self.output_bias(state)


class EncodedMixer(nn.Module):
    """A mixer whose state consists of several arrays, encoded by a `JointEncoder`."""

    def __init__(self, encoder: nn.Module, mixer: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.mixer = mixer

    def forward(self, values: Tensor, *arrays: Tensor) -> Tensor:
        """Map ``[*batch, agents, 1]`` and the state's arrays to ``[*batch, 1]``."""
        return self.mixer(values, self.encoder(*arrays))
