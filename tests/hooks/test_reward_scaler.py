from __future__ import annotations

import numpy as np
import pytest
import torch
from no_waiting import NoWaiting, OnDevice
from other_rank import average_with
from tensordict import TensorDict

from hooktrainer import RewardScaler
from hooktrainer.testing import tiny_trainer


def batch(rewards, done=None):
    rewards = torch.tensor(rewards).unsqueeze(-1)
    ends = torch.zeros_like(rewards, dtype=torch.bool)
    if done is not None:
        ends = torch.tensor(done).unsqueeze(-1)
    following = {"reward": rewards, "done": ends}
    return TensorDict({"next": following}, batch_size=rewards.shape[:2])


def scaled(hook, *arguments):
    return hook(batch(*arguments))["next", "reward"].squeeze(-1)


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    hook = RewardScaler(gamma=0.5, eps=0.0)
    # returns: 1, 2 + 0.5 = 2.5, 4 + 1.25 = 5.25
    expected = torch.tensor([[1.0, 2.0, 4.0]]) / np.std([1.0, 2.5, 5.25])
    torch.testing.assert_close(scaled(hook, [[1.0, 2.0, 4.0]]), expected)


def test_returns_continue_over_batches_and_restart_with_an_episode():
    hook = RewardScaler(gamma=0.5, eps=0.0)
    scaled(hook, [[1.0, 2.0]], [[False, True]])  # 1, 2.5, then a new episode
    result = scaled(hook, [[3.0, 1.0]])  # 3, 2.5
    deviation = np.std([1.0, 2.5, 3.0, 2.5])
    torch.testing.assert_close(result, torch.tensor([[3.0, 1.0]]) / deviation)


def test_the_batch_that_was_given_is_unchanged_and_outliers_are_clipped():
    hook = RewardScaler(gamma=0.0, clip=2.0, eps=0.0)
    given = batch([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 100.0]])
    result = hook(given)
    assert given["next", "reward"].max() == 100.0
    assert result["next", "reward"].max() == 2.0


def test_the_rewards_of_a_group_are_scaled_as_those_of_so_many_environments():
    rewards, done = torch.randn(2, 5, 3, 1), torch.rand(2, 5, 3, 1) < 0.3
    apart = {"reward": rewards.transpose(1, 2).flatten(0, 1)}
    apart["done"] = done.transpose(1, 2).flatten(0, 1)
    plain = RewardScaler(gamma=0.5)(TensorDict({"next": TensorDict(apart, [6, 5])}, [6, 5]))
    own = TensorDict({"reward": rewards, "done": done}, [2, 5, 3])
    batch = TensorDict({"next": {"cats": own, "reward": torch.ones(2, 5, 1)}}, [2, 5])
    scaled = RewardScaler(gamma=0.5, group="cats")(batch)
    found = scaled["next", "cats", "reward"].transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(found, plain["next", "reward"])
    assert batch["next", "cats", "reward"].equal(rewards)
    assert scaled["next", "reward"].equal(batch["next", "reward"])


def test_with_another_number_of_environments_returns_restart():
    first, second = RewardScaler(gamma=0.5, eps=0.0), RewardScaler(gamma=0.5, eps=0.0)
    scaled(first, [[1.0, 2.0], [3.0, 4.0]])  # 1, 2.5 and 3, 5.5
    second.load_state_dict(first.state_dict())
    result = scaled(second, [[8.0]])
    torch.testing.assert_close(result, torch.tensor([[8.0]]) / np.std([1.0, 2.5, 3.0, 5.5, 8.0]))


def test_the_statistics_of_ranks_are_those_of_all_their_returns():
    hook = RewardScaler(gamma=0.0, eps=0.0)
    hook.average_over_ranks = average_with(6.0, 37.0)  # this rank's 1 and 3 with 5 and 7
    expected = torch.tensor([[1.0, 3.0]]) / np.std([1.0, 3.0, 5.0, 7.0])
    torch.testing.assert_close(scaled(hook, [[1.0, 3.0]]), expected)


def test_replayed_samples_are_scaled_by_the_latest_statistics():
    trainer = tiny_trainer()
    hook = RewardScaler(gamma=0.5, eps=0.0, replay=True)
    hook.register(trainer)
    collected = batch([[1.0, 2.0, 4.0]])
    points = trainer.registry.points
    for value in (collected, batch([[8.0, 8.0, 8.0]])):
        kept = points["batch_process"](value)
        stored = value if kept is None else kept
        assert torch.equal(stored["next", "reward"], value["next", "reward"])
    sample = points["process_optim_batch"](collected)
    returns = [1.0, 2.5, 5.25, 10.625, 13.3125, 14.65625]
    expected = torch.tensor([[1.0, 2.0, 4.0]]) / np.std(returns)
    torch.testing.assert_close(sample["next", "reward"].squeeze(-1), expected)


@pytest.mark.parametrize("masked", [False, True])
def test_on_an_accelerator_it_scales_the_same_without_synchronizing(masked):
    torch.manual_seed(0)
    here, there = RewardScaler(), RewardScaler()
    for _ in range(3):
        data = batch(torch.randn(4, 16).tolist(), (torch.rand(4, 16) < 0.2).tolist())
        if masked:
            data["collector"] = TensorDict({"mask": torch.rand(4, 16) < 0.7}, [4, 16])
        on_device = data.apply(lambda x: x.as_subclass(OnDevice))
        with NoWaiting():
            found = there(on_device)["next", "reward"]
        expected = here(data)["next", "reward"]
        torch.testing.assert_close(found.as_subclass(torch.Tensor), expected)
    again = RewardScaler()
    again.load_state_dict(there.state_dict())
    torch.testing.assert_close(
        again(data)["next", "reward"], here(data)["next", "reward"], check_dtype=False
    )
