"""Memories: step by step as over sequences, forgetting where an episode begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hooktrainer import ConfigError
from hooktrainer.networks import MEMORIES, Memory, MemoryTrunk, memory_for, mlp

BATCH, TIME = 5, 23


def make_trunk(name: str) -> MemoryTrunk:
    torch.manual_seed(0)
    return MemoryTrunk(mlp(3, 6, ()), memory_for(name, 6, 8, length=6))


def make_sequence(trunk: MemoryTrunk) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Observations, where episodes begin, and hidden states to begin with."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, TIME, 3, generator=generator)
    is_init = torch.rand(BATCH, TIME, 1, generator=generator) < 0.15
    is_init[0, 0], is_init[1, 0] = True, False
    states = [zeros.expand(BATCH, *zeros.shape) for zeros in trunk.memory.hidden.values()]
    for step in torch.randn(3, BATCH, 3, generator=generator):  # as some steps before leave them
        _, after = trunk.remember(step, torch.zeros(BATCH, 1, dtype=torch.bool), *states)
        states = list(after.values())
    return x, is_init, [state.detach() for state in states]


def step_by_step(trunk, x, is_init, states):
    outputs, after = [], []
    for t in range(x.shape[1]):
        output, following = trunk.remember(x[:, t], is_init[:, t], *states)
        states = list(following.values())
        outputs.append(output)
        after.append(states)
    return torch.stack(outputs, 1), [torch.stack(each, 1) for each in zip(*after, strict=True)]


@pytest.mark.parametrize("name", MEMORIES)
def test_steps_and_a_sequence_agree(name):
    trunk = make_trunk(name)
    x, is_init, states = make_sequence(trunk)
    one, one_after = step_by_step(trunk, x, is_init, states)
    over = [state.unsqueeze(1) for state in states]  # of a sequence, the first is enough
    many, many_after = trunk.remember(x, is_init, *over)
    torch.testing.assert_close(many, one)
    for state, expected in zip(many_after.values(), one_after, strict=True):
        torch.testing.assert_close(state, expected)


@pytest.mark.parametrize("name", MEMORIES)
def test_what_was_before_the_beginning_of_an_episode_is_forgotten(name):
    trunk = make_trunk(name)
    x, _, states = make_sequence(trunk)
    is_init = torch.zeros(BATCH, TIME, 1, dtype=torch.bool)
    is_init[:, 9] = True
    over = [state.unsqueeze(1) for state in states]
    first = trunk(x, is_init, *over)
    other = torch.cat([torch.randn_like(x[:, :9]), x[:, 9:]], 1)
    second = trunk(other, is_init, *[torch.randn_like(state.float()).to(state) for state in over])
    torch.testing.assert_close(first[:, 9:], second[:, 9:])
    assert not torch.allclose(first[:, 8], second[:, 8])
    assert not torch.allclose(trunk(x, torch.zeros_like(is_init), *over)[:, 9:], first[:, 9:])


@pytest.mark.parametrize("name", MEMORIES)
def test_gradients_go_through_time_but_not_past_a_beginning(name):
    trunk = make_trunk(name)
    x, _, states = make_sequence(trunk)
    is_init = torch.zeros(BATCH, TIME, 1, dtype=torch.bool)
    is_init[:, 5] = True
    x.requires_grad_()
    trunk(x, is_init, *[state.unsqueeze(1) for state in states])[:, 8].sum().backward()
    reached = x.grad.abs().sum((0, 2)) > 0
    assert reached.tolist() == [5 <= t <= 8 for t in range(TIME)]


class Average(Memory):
    """One of a user's own: the mean of what was seen."""

    def __init__(self, in_features):
        hidden = {"sum": torch.zeros(in_features), "count": torch.zeros(1, dtype=torch.int64)}
        super().__init__(in_features, in_features, hidden)

    def step(self, x, states):
        total, count = states[0] + x, states[1] + 1
        return total / count, (total, count)


def test_one_of_your_own_says_what_a_step_does():
    memory = memory_for(Average, 2, 64)
    x = torch.arange(8.0).reshape(1, 4, 2)
    is_init = torch.tensor([True, False, True, False]).reshape(1, 4, 1)
    zeros = [state[None, None] for state in memory.hidden.values()]
    out, (_, count) = memory(x, is_init, *zeros)
    assert out.tolist() == [[[0, 1], [1, 2], [4, 5], [5, 6]]]
    assert count.flatten().tolist() == [1, 2, 1, 2]
    assert count.dtype is torch.int64


def test_what_cannot_be_is_one_line():
    with pytest.raises(ConfigError, match=r"memory='grus' is unknown\. Did you mean gru\? The"):
        memory_for("grus", 4, 8)
    with pytest.raises(ConfigError, match=r"made Linear\(.*which is no hooktrainer\.networks\.Mem"):
        memory_for(lambda features: nn.Linear(features, 3), 4, 8)
