"""What is learned where an episode is broken off, with and without its true final observation."""

from __future__ import annotations

import pytest
import torch
from toy_worlds import Decay, HiddenDecay

from hooktrainer import VectorCollector
from hooktrainer.networks import ValueNetwork
from hooktrainer.objectives import GAE

GAMMA, SLOPE = Decay.GAMMA, Decay.SLOPE


def exact_value() -> ValueNetwork:
    layer = torch.nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(SLOPE)
        layer.bias.fill_(Decay.OFFSET)
    return ValueNetwork(layer)


def errors(batch, lmbda: float) -> torch.Tensor:
    """How far the value targets are from the values that are right, ``[time]``."""
    with torch.no_grad():
        right = exact_value()(batch.select("observation"))["state_value"]
    GAE(gamma=GAMMA, lmbda=lmbda, value_network=exact_value())(batch)
    return (batch["value_target"] - right)[0, :, 0]


def collect(world) -> torch.Tensor:
    return VectorCollector(world, num_envs=1, frames_per_batch=6).collect()


def test_the_true_final_observation_gives_targets_without_bias():
    batch = collect(Decay)
    assert batch["next", "observation"].flatten().tolist() == [1, 1.5, 1.75, 1, 1.5, 1.75]
    torch.testing.assert_close(errors(batch, 0.95), torch.zeros(6), atol=1e-5, rtol=0)


@pytest.mark.parametrize("lmbda", [0.0, 0.95])
def test_a_hidden_final_observation_is_replaced_by_the_last_known(lmbda):
    """The bias is gamma times how the value changes in the last step: the episode's alone."""
    batch = collect(HiddenDecay)
    # The states of an episode are 0, 1, 1.5 and, unseen, 1.75.
    assert batch["next", "observation"].flatten().tolist() == [1, 1.5, 1.5, 1, 1.5, 1.5]
    assert batch["collector", "final_hidden"].flatten().tolist() == [0, 0, 1, 0, 0, 1]
    bias = GAMMA * SLOPE * (1.5 - 1.75)
    back = [bias * (GAMMA * lmbda) ** steps for steps in (2, 1, 0)]
    found = errors(batch, lmbda)
    torch.testing.assert_close(found, torch.tensor(back * 2), atol=1e-5, rtol=0)


def test_the_bias_is_smaller_than_that_of_the_alternatives():
    """Of taking the end for a terminal state, and the next episode's first state for the final."""
    known = errors(collect(HiddenDecay), 0.0)[2].abs()
    batch = collect(Decay)
    batch["next", "terminated"] = batch["next", "done"]
    terminal = errors(batch, 0.0)[2].abs()
    batch = collect(Decay)
    batch["next", "observation"] *= ~batch["next", "done"]
    first = errors(batch, 0.0)[2].abs()
    assert [round(float(x), 2) for x in (known, first, terminal)] == [0.2, 1.43, 17.8]
