"""GAE: numbers worked out by hand, and equality with TorchRL's on random data."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.objectives import value as torchrl_value

from hooktrainer.networks import ValueNetwork, mlp
from hooktrainer.objectives import GAE, generalized_advantage_estimate


def column(*values):
    return torch.tensor(values).unsqueeze(-1)


def test_by_hand():
    # gamma 0.5, lambda 0.5. Step 1 is truncated: bootstrapped with 4, and nothing comes back from
    # step 2. Step 3 is terminal: not bootstrapped.
    advantage, target = generalized_advantage_estimate(
        0.5,
        0.5,
        state_value=column(1.0, 2.0, 3.0, 4.0, 5.0),
        next_state_value=column(2.0, 4.0, 4.0, 9.0, 6.0),
        reward=column(1.0, 1.0, 1.0, 1.0, 1.0),
        done=column(False, True, False, True, False),
        terminated=column(False, False, False, True, False),
    )
    # deltas: 1+1-1=1, 1+2-2=1, 1+2-3=0, 1-4=-3, 1+3-5=-1
    assert advantage.squeeze(-1).tolist() == [1.25, 1.0, -0.75, -3.0, -1.0]
    assert target.squeeze(-1).tolist() == [2.25, 3.0, 2.25, 1.0, 4.0]


def test_the_value_of_a_terminal_observation_does_not_matter():
    value, reward, done = column(1.0, 2.0), column(1.0, 1.0), column(False, True)
    advantage, _ = generalized_advantage_estimate(
        0.5, 0.5, value, column(2.0, float("nan")), reward, done
    )
    assert advantage.squeeze(-1).tolist() == [0.75, -1.0]


def test_shapes_that_would_broadcast_are_refused():
    value = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"reward \(4,\)"):
        generalized_advantage_estimate(0.9, 0.9, value, value, torch.zeros(4), value > 0)
    critic = ValueNetwork(mlp(4, 2))
    with pytest.raises(ValueError, match=r"reward \(3, 5, 1\)"):
        GAE(gamma=0.9, lmbda=0.9, value_network=critic)(rollout(3, 5))


def rollout(*batch, ends=0.1, features=4):
    """A rollout whose next observation is the observation one step later, but for ends."""
    states = torch.randn(*batch[:-1], batch[-1] + 1, features)
    observation, following = states[..., :-1, :].clone(), states[..., 1:, :].clone()
    done = torch.rand(*batch, 1) < ends
    following[done.squeeze(-1), 1:] = torch.randn(int(done.sum()), features - 1)  # not the first
    return TensorDict(
        observation=observation,
        next=TensorDict(
            observation=following,
            reward=torch.randn(*batch, 1),
            done=done,
            terminated=done & (torch.rand(*batch, 1) < 0.5),
            batch_size=batch,
        ),
        batch_size=batch,
    )


KEYS = ["advantage", "value_target", "state_value", ("next", "state_value")]


@pytest.mark.parametrize("batch", [(1, 2), (3, 1), (4, 32), (5,), (2, 3, 8)])
@pytest.mark.parametrize("average_gae", [False, True])
def test_module_equals_torchrls(batch, average_gae):
    data, critic = rollout(*batch, ends=0.2), ValueNetwork(mlp(4, 1))
    arguments = {"gamma": 0.9, "lmbda": 0.8, "value_network": critic, "average_gae": average_gae}
    gae = GAE(**arguments)
    ours = gae(data.clone())
    gae.compiled = gae.compute  # with few numbers of rows
    torch.testing.assert_close(gae(data.clone()).to_dict(), ours.to_dict())
    theirs = torchrl_value.GAE(**arguments)(data.clone())
    for key in KEYS:
        torch.testing.assert_close(ours[key], theirs[key], atol=1e-5, rtol=1e-5)


class Counting(nn.Module):
    rows = 0

    def forward(self, observation):
        self.rows += len(observation)
        return observation.sum(-1, keepdim=True)


def test_values_are_computed_once_but_where_the_next_observation_is_another():
    data, network = rollout(4, 32, ends=0.2), Counting()
    GAE(gamma=0.9, lmbda=0.8, value_network=ValueNetwork(network))(data)
    ends = data["next", "done"].clone()
    ends[:, -1] = True
    assert network.rows == 4 * 32 + int(ends.sum())
    torch.testing.assert_close(
        data["next", "state_value"], data["next", "observation"].sum(-1, keepdim=True)
    )
