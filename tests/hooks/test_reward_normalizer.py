from __future__ import annotations

import math

import pytest
import torch
from other_rank import average_with
from tensordict import TensorDict

from hooktrainer import HookError, RewardNormalizer
from hooktrainer.testing import tiny_trainer


def rewards(*values: float, key=("next", "reward")) -> TensorDict:
    td = TensorDict({}, [len(values)])
    td.set(key, torch.tensor(values).unsqueeze(-1))
    return td


@pytest.mark.parametrize(
    ("values", "options", "mean", "std"),
    [
        ([1.0, 2.0, 3.0, 6.0], {}, 3.0, math.sqrt(14 / 3)),
        ([7.0], {"eps": 0.25}, 7.0, 0.5),
        ([100_000.0, 100_002.0], {"decay": 1.0}, 100_001.0, math.sqrt(2)),
    ],
)
def test_mean_and_deviation_of_one_batch(values, options, mean, std):
    hook = RewardNormalizer(**options)
    hook.update_reward_stats(rewards(*values))
    assert (hook.mean.item(), hook.std.item()) == pytest.approx((mean, std))


def test_rewards_are_normalized_and_scaled():
    hook = RewardNormalizer(scale=10.0)
    hook.update_reward_stats(rewards(-1.0, 1.0))
    out = hook.normalize_reward(rewards(0.0, 1.0))["next", "reward"].flatten()
    assert torch.allclose(out, torch.tensor([0.0, 10 / math.sqrt(2)]))


def test_normalized_rewards_are_not_fed_back():
    trainer = tiny_trainer(optim_steps_per_batch=5)
    hook, plain = RewardNormalizer(decay=1.0), []
    hook.register(trainer)
    trainer.register_op("post_steps_log", lambda td: plain.append(td["next", "reward"].clone()))
    trainer.train()
    assert hook.mean.item() == pytest.approx(torch.cat(plain).mean().item(), abs=1e-6)
    assert hook.std.item() == pytest.approx(torch.cat(plain).std().item(), abs=1e-6)


def test_the_statistics_of_ranks_are_those_of_all_their_rewards():
    hook = RewardNormalizer()
    hook.average_over_ranks = average_with(12.0, 74.0)  # this rank's 1 and 3 with 5 and 7
    hook.update_reward_stats(rewards(1.0, 3.0))
    assert hook.mean.item() == 4.0


def test_padding_is_left_out():
    batch = rewards(1.0, 3.0, 100.0)
    batch["collector", "mask"] = torch.tensor([True, True, False])
    hook = RewardNormalizer()
    hook.update_reward_stats(batch)
    assert hook.mean.item() == 2.0


def test_without_statistics_the_error_names_the_hook_point():
    with pytest.raises(HookError, match="register update_reward_stats at batch_process"):
        RewardNormalizer().normalize_reward(rewards(1.0))
    with pytest.raises(KeyError, match="not found"):  # of mini-batches without it
        RewardNormalizer().normalize_reward(TensorDict({}, [1]))
