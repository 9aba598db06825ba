"""Memory: recurrent networks and transformers, and the trunks that networks share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from tensordict import NestedKey, unravel_key
from torch import Tensor, nn

from ..base.checks import named
from ..errors import ConfigError
from .layers import arguments, takes_one

Hidden: TypeAlias = tuple[Tensor, ...]  # the hidden states of a memory, in its order


class Memory(nn.Module, ABC):
    """Base class: maps the features of a step and hidden states to features and next hidden states.

    The shape of ``is_init``, which is true where an episode begins, determines the call:

    - ``[batch, 1]`` is one step;
    - ``[batch, time, 1]`` is a sequence, which begins with the hidden states stored at its first
      step; those of later steps are not used.

    Where ``is_init`` is true the hidden states are reset to zeros. Both calls agree to float
    rounding. A subclass implements `step`; `sequence` is a loop over it unless overridden by a
    faster one.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        hidden: The hidden states of one environment by name: examples of shape and type.
    """

    def __init__(self, in_features: int, out_features: int, hidden: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.hidden = {name: torch.zeros_like(example) for name, example in hidden.items()}

    @abstractmethod
    def step(self, x: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """One step: features ``[batch, out_features]`` and the next hidden states.

        They are of ``x`` ``[batch, in_features]`` and hidden states ``[batch, ...]``.
        """

    def sequence(self, x: Tensor, is_init: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """Features ``[batch, time, out_features]``, and the hidden states ``[batch, time, ...]``.

        They are after each step of ``x`` ``[batch, time, in_features]``, from the states before the
        first step, ``[batch, ...]`` each; ``is_init`` is ``[batch, time, 1]``.
        """
        outputs, after = [], []
        for step, begins in zip(x.unbind(1), is_init.unbind(1), strict=True):
            output, states = self.step(step, _forget(begins, states))
            outputs.append(output)
            after.append(states)
        return torch.stack(outputs, 1), tuple(
            torch.stack(state, 1) for state in zip(*after, strict=True)
        )

    def forward(self, x: Tensor, is_init: Tensor, *states: Tensor) -> tuple[Tensor, Hidden]:
        """Features ``[*batch, out_features]``, and the hidden states after each step.

        ``x`` is ``[*batch, in_features]``; ``is_init`` ``[*batch, 1]``: one step if it has two
        dimensions, a sequence if three. Of the states before each step, ``[*batch, ...]``, a
        sequence needs the first.
        """
        if is_init.ndim == 2:
            return self.step(x, _forget(is_init, states))
        return self.sequence(x, is_init, tuple(state[:, 0] for state in states))


def _forget(is_init: Tensor, states: Hidden) -> Hidden:
    """Reset the hidden states ``[batch, ...]`` to zeros where an episode begins."""
    return tuple(
        torch.where(is_init.view(-1, *(1,) * (state.ndim - 1)), 0, state) for state in states
    )


IS_INIT = "is_init"
"""The entry that is true where an episode begins, ``[*batch, 1]``."""
States = dict[NestedKey, Tensor]
"""Hidden states by key, ``[*batch, ...]`` each."""


class MemoryTrunk(nn.Module):
    """An encoder and a memory as a shared trunk of policies and value networks.

    It is a ``trunk`` of `Policy`, `ValueNetwork`, `QNetwork` and `DeterministicPolicy`. A policy
    with it writes the next hidden states under ``"next"``. `VectorCollector` carries them from step
    to step, and resets them where an episode begins. See `Memory` for steps and sequences.

    Args:
        encoder: Maps observations, concatenated if it takes one tensor, to features.
        memory: Takes the features.
        observed: The entries of the observation.
        name: Its hidden states are entries ``(name, ...)``.

    Attributes:
        in_keys: The observation, ``"is_init"`` and the hidden states.
        hidden_keys: The hidden states among these.
        next_keys: The next hidden states, which a policy writes.
        out_features: Number of features.
    """

    def __init__(
        self,
        encoder: nn.Module,
        memory: Memory,
        observed: Sequence[NestedKey] = ("observation",),
        name: NestedKey = "memory",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.observed = list(observed)
        self.hidden_keys: list[NestedKey] = [unravel_key((name, each)) for each in memory.hidden]
        self.next_keys: list[NestedKey] = [unravel_key(("next", key)) for key in self.hidden_keys]
        self.in_keys: list[NestedKey] = [*self.observed, IS_INIT, *self.hidden_keys]
        self.out_features = memory.out_features
        self._joins = takes_one(encoder)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The features ``[*batch, out_features]`` of the entries ``in_keys``."""
        return self.remember(*inputs)[0]

    def remember(self, *inputs: Tensor) -> tuple[Tensor, States]:
        """The features of the entries ``in_keys``, and the hidden states after each step."""
        number = len(self.observed)
        encoded = self.encoder(*arguments(inputs[:number], self._joins))
        features, states = self.memory(encoded, *inputs[number:])
        return features, dict(zip(self.hidden_keys, states, strict=True))

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial hidden states."""
        first = zip(self.hidden_keys, self.memory.hidden.values(), strict=True)
        return primer({key: (state, 0) for key, state in first})


def primer(hidden: Mapping[NestedKey, tuple[Tensor, float]]) -> Any:
    """TorchRL's primer of hidden states, given an example and the initial value of each."""
    from torchrl.data import Composite, Unbounded
    from torchrl.envs import TensorDictPrimer

    spec = Composite()
    for key, (example, _) in hidden.items():
        spec[key] = Unbounded(shape=example.shape, dtype=example.dtype)
    return TensorDictPrimer(spec, default_value={key: value for key, (_, value) in hidden.items()})


class GRUMemory(Memory):
    """A gated recurrent unit (Cho et al., 2014); its hidden state ``h`` is its output."""

    def __init__(self, in_features: int, size: int = 64) -> None:
        super().__init__(in_features, size, {"h": torch.zeros(size)})
        self.cell = nn.GRUCell(in_features, size)

    def step(self, x: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """One step: features and hidden state are the same."""
        h = self.cell(x, states[0])
        return h, (h,)


class LSTMMemory(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); its output is ``h``, not ``c``."""

    def __init__(self, in_features: int, size: int = 64) -> None:
        super().__init__(in_features, size, {"h": torch.zeros(size), "c": torch.zeros(size)})
        self.cell = nn.LSTMCell(in_features, size)

    def step(self, x: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        h, c = self.cell(x, states)
        return h, (h, c)


class TransformerMemory(Memory):
    """A causal transformer over the current step and a fixed number of steps before it.

    It is the gated one of Parisotto et al., 2020, arXiv:1910.06764 (GTrXL): layer norms before
    attention and feed-forward, GRU-like gates after them, which start near the identity. As in
    Transformer-XL (Dai et al., 2019, arXiv:1901.02860), each layer attends to its inputs at
    previous steps; those from a hidden state get no gradient. Positions are encoded by a learned
    bias for each distance and head.

    Its hidden states are ``window``, these inputs ``[layers, length, size]``, zeros before the
    episode, and ``seen``, the number of steps in the window.

    Args:
        in_features: Size of the input's last dimension.
        size: Size of the output; a multiple of ``heads``.
        length: Number of previous steps that a layer attends to.
        layers: Number of layers; each reaches ``length`` steps further back.
        heads: Attention heads of each.
    """

    def __init__(
        self, in_features: int, size: int = 64, length: int = 32, layers: int = 1, heads: int = 4
    ) -> None:
        if size % heads:
            raise ConfigError(
                f"TransformerMemory: size={size} is no multiple of heads={heads}: choose another "
                "memory_size."
            )
        hidden = {
            "window": torch.zeros(layers, length, size),
            "seen": torch.zeros(1, dtype=torch.int64),
        }
        super().__init__(in_features, size, hidden)
        self.length = length
        self.embedding = nn.Linear(in_features, size)
        self.layers = nn.ModuleList(_Layer(size, length, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def step(self, x: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """One step: a sequence of length 1."""
        window, seen = states
        features, after = self._look_back(x.unsqueeze(1), window, seen)
        return features.squeeze(1), tuple(state.squeeze(1) for state in after)

    def sequence(self, x: Tensor, is_init: Tensor, states: Hidden) -> tuple[Tensor, Hidden]:
        """All steps at once, each attending to its episode alone."""
        window, seen = states
        steps = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        begun = torch.where(is_init.squeeze(-1), steps, -1).cummax(1).values
        age = torch.where(begun < 0, seen + steps, steps - begun).clamp_max(self.length)
        return self._look_back(x, window, age)

    def _look_back(self, x: Tensor, window: Tensor, age: Tensor) -> tuple[Tensor, Hidden]:
        """Features ``[batch, time, size]``, and the hidden states after each step.

        ``x`` is ``[batch, time, in_features]``, ``window`` the one before the first step, and
        ``age`` the number of previous steps in the episode, ``[batch, time]``.
        """
        time, length = x.shape[1], self.length
        key = torch.arange(length + time, device=x.device)
        distance = key[length:].unsqueeze(-1) - key  # [time, length + time]
        visible = (distance >= 0) & (distance <= age.unsqueeze(-1))  # [batch, time, length + time]
        distance = distance.clamp(0, length)
        # The steps that are in the window after each step, whose own input is the last.
        kept = torch.arange(length - 1, -1, -1, device=x.device) <= age.unsqueeze(-1)
        features, windows = self.embedding(x), []
        for number, layer in enumerate(self.layers):
            context = torch.cat([window[:, number], features], 1)
            after = context.detach()[:, 1:].unfold(1, length, 1).transpose(2, 3)
            windows.append(torch.where(kept.unsqueeze(-1), after, 0))
            features = layer(features, context, distance, visible)
        seen = (age + 1).clamp_max(length).unsqueeze(-1)
        return self.norm(features), (torch.stack(windows, 2), seen)


class _Layer(nn.Module):
    """Attention to previous steps, and a feed-forward network, each followed by a gate."""

    def __init__(self, size: int, length: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(size)
        self.query = nn.Linear(size, size)
        self.key_value = nn.Linear(size, 2 * size)
        self.output = nn.Linear(size, size)
        self.distance_bias = nn.Parameter(torch.zeros(heads, length + 1))
        self.attention_gate = _Gate(size)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size)
        )
        self.feed_forward_gate = _Gate(size)

    def forward(self, x: Tensor, context: Tensor, distance: Tensor, visible: Tensor) -> Tensor:
        """Map ``[batch, time, size]`` to the same; ``context`` has the previous steps and ``x``."""
        query = self._by_head(self.query(self.norm(x)))
        keys, values = self.key_value(self.norm(context)).chunk(2, -1)
        key, value = self._by_head(keys), self._by_head(values)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores + self.distance_bias[:, distance]
        weights = scores.masked_fill(~visible.unsqueeze(1), -math.inf).softmax(-1)
        attended = (weights @ value).transpose(1, 2).flatten(2)
        x = self.attention_gate(x, self.output(attended).relu())
        return self.feed_forward_gate(x, self.feed_forward(x).relu())

    def _by_head(self, x: Tensor) -> Tensor:
        """``[batch, heads, time, size of a head]``."""
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class _Gate(nn.Module):
    """A gate between input and result, near the identity at first."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.result = nn.Linear(size, 3 * size, bias=False)
        self.given = nn.Linear(size, 2 * size, bias=False)
        self.candidate = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.full((size,), 2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Combine input ``x`` and result ``y``."""
        reset_y, update_y, candidate_y = self.result(y).chunk(3, -1)
        reset_x, update_x = self.given(x).chunk(2, -1)
        reset = torch.sigmoid(reset_y + reset_x)
        update = torch.sigmoid(update_y + update_x - self.bias)
        candidate = torch.tanh(candidate_y + self.candidate(reset * x))
        return x + update * (candidate - x)


MEMORIES: Mapping[str, Callable[[int, int, int], Memory]] = {
    "gru": lambda in_features, size, length: GRUMemory(in_features, size),
    "lstm": lambda in_features, size, length: LSTMMemory(in_features, size),
    "transformer": TransformerMemory,
}
"""Memories by name, each made from the number of features, its size and its length."""


def memory_for(made_by: Any, in_features: int, size: int = 64, length: int = 32) -> Memory:
    """Make a memory from a key of ``MEMORIES``, or a function from the number of features.

    ``size`` and the transformer's ``length``, the number of previous steps, are for a name.
    """
    if isinstance(made_by, str):
        more = "; in Python also a function from the number of features to a Memory"
        return named("memory", made_by, MEMORIES, more)(in_features, size, length)
    made = made_by(in_features) if callable(made_by) else made_by
    if not isinstance(made, Memory):
        raise ConfigError(
            f"memory={made_by!r:.80} made {made!r:.80}, which is no hooktrainer.networks.Memory."
        )
    return made
