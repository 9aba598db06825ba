"""`RandomNetworkDistillation`: rewards by hand, what is learned, and a run that goes on exactly."""

from __future__ import annotations

import math

import pytest
import torch
from other_rank import average_with
from tensordict import TensorDict
from torch import nn

from hooktrainer import ConfigError, RandomNetworkDistillation


def example(trainer):
    torch.manual_seed(0)
    return RandomNetworkDistillation(4)


def batch(observations, rewards=None, mask=None) -> TensorDict:
    seen = torch.tensor(observations).unsqueeze(-1)
    reward = torch.zeros_like(seen) if rewards is None else torch.tensor(rewards).unsqueeze(-1)
    data = {"next": {"observation": seen, "reward": reward}}
    if mask is not None:
        data["collector"] = {"mask": torch.tensor(mask)}
    return TensorDict(data, seen.shape[:2])


def times(factor: float) -> nn.Module:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, factor)
    return layer


def make(lr: float = 0.0, **options) -> RandomNetworkDistillation:
    """The intrinsic reward is the square of the normalized observation, before it is scaled."""
    given = {"target": times(1.0), "predictor": times(0.0), "gamma": 0.5, "steps": 1, "lr": lr}
    return RandomNetworkDistillation(1, **given | options)


def rewards(hook, *arguments) -> list[list[float]]:
    return hook(batch(*arguments))["next", "reward"].squeeze(-1).tolist()


def test_rewards_by_hand():
    hook = make(coeff=2.0)
    # 1 and 3 have the mean 2 and the deviation 1, so both are surprising by 1. The returns are 1
    # and 1.5 in both environments: their deviation is 1/4.
    given = batch([[1.0, 3.0], [3.0, 1.0]], [[0.0, 10.0], [20.0, 30.0]])
    out = hook(given)["next", "reward"].squeeze(-1)
    torch.testing.assert_close(out, torch.tensor([[8.0, 18.0], [28.0, 38.0]]))
    assert given["next", "reward"].flatten().tolist() == [0.0, 10.0, 20.0, 30.0]
    said = hook.log(None)
    assert said["rnd/reward"].item() == pytest.approx(4.0)
    assert said["rnd/loss"].item() == pytest.approx(1.0)
    # The returns go on: 1.75 and 1.875. Of 1, 1.5, 1.75 and 1.875, twice each:
    mean, square = 6.125 / 4, (1 + 2.25 + 3.0625 + 3.515625) / 4
    deviation = math.sqrt(square - mean**2)
    again = rewards(hook, [[1.0, 3.0], [3.0, 1.0]])
    assert again == [pytest.approx([2 / deviation] * 2)] * 2


@pytest.mark.parametrize("options", [{"features": 3}, {"key": ("next", "obs")}])
def test_other_observations_than_such_vectors_are_refused(options):
    hook = RandomNetworkDistillation(**{"features": 1, **options})
    with pytest.raises(ConfigError, match=r"so many features, .*'observation': \[1\]"):
        hook(batch([[1.0, 3.0]]))


def test_the_statistics_of_ranks_are_those_of_all_their_observations():
    hook = make()
    hook.average_over_ranks = average_with(6.0, 37.0)  # this rank's 1 and 3 with 5 and 7
    hook._update(hook.norm, torch.tensor([[1.0], [3.0]]))
    assert hook.norm.mean.item() == pytest.approx(4.0)
    assert hook.norm.var.item() == pytest.approx(5.0)


def test_the_predictor_learns_and_the_target_does_not():
    torch.manual_seed(0)
    hook = RandomNetworkDistillation(3, lr=3e-3, steps=8)
    target = [p.clone() for p in hook.target.parameters()]
    random = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(30):
        seen = torch.randn(4, 16, 3, generator=random)
        hook(TensorDict({"next": {"observation": seen, "reward": seen[..., :1]}}, [4, 16]))
        losses.append(hook.log(None)["rnd/loss"].item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(map(torch.equal, target, hook.target.parameters()))
    # What it has never seen is more surprising than what it knows.
    known, new = torch.randn(64, 3), 4 + torch.randn(64, 3)
    error = [hook._error(hook.norm(x)).mean().item() for x in (known, new)]
    assert error[1] > 3 * error[0]
