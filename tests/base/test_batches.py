from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import (
    LogScalar,
    MiniBatches,
    ObservationNormalizer,
    ReplayBufferTrainer,
    RewardScaler,
)
from hooktrainer.base.tensordicts import count_valid, mask_of, valid, valid_steps
from hooktrainer.networks import RunningNorm
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import tiny_trainer

MASK = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
DATA = [0.0, 1.0, 3.0, 6.0, 7.0, 8.0]


def padded() -> TensorDict:
    """Three trajectories of 2, 1 and 3 steps, numbered 0 to 8; the padding is far off."""
    x = torch.where(MASK, torch.arange(9.0).reshape(3, 3), 1e6)
    column = x.unsqueeze(-1)
    done = torch.zeros(3, 3, 1, dtype=torch.bool)
    following = {"observation": column + 1, "reward": column.clone(), "done": done}
    return TensorDict(
        {"observation": column, "action": x, "next": following, "collector": {"mask": MASK}}, [3, 3]
    )


def test_without_a_mask_all_steps_are_data():
    batch = padded().exclude("collector")
    assert mask_of(batch) is None
    assert count_valid(batch) == 9
    assert valid(batch, "action") is batch["action"]
    assert valid_steps(batch) is batch


def test_a_replay_buffer_stores_data_only():
    buffer = ReplayBuffer(100)
    ReplayBufferTrainer(buffer).extend(padded())
    assert (buffer.write_count, len(buffer)) == (6, 6)
    assert buffer.state_dict()["storage"]["action"].tolist() == DATA


def test_mini_batches_hold_data_only():
    seen, trainer = (
        [],
        tiny_trainer(collector=[padded()], optim_steps_per_batch=None, total_frames=1),
    )
    MiniBatches(4, keys=["action"]).register(trainer)
    trainer.register_op("post_optim_log", lambda piece: seen.extend(piece["action"].tolist()))
    trainer.train()
    assert sorted(seen) == DATA


def test_statistics_are_of_data_only():
    norm = RunningNorm(1)
    ObservationNormalizer(norm)(padded())
    assert norm.count == 6
    assert norm.mean.item() == pytest.approx(sum(DATA) / 6)
    assert LogScalar()(padded())["('next', 'reward')"].item() == pytest.approx(sum(DATA) / 6)


def test_rewards_are_scaled_by_the_returns_of_the_trajectories():
    hook = RewardScaler(gamma=0.5, eps=0.0)
    returns = torch.tensor([0.0, 1.0, 3.0, 6.0, 10.0, 13.0])  # 7 + 6 / 2, 8 + 10 / 2
    for _ in range(2):  # the trajectories of the next batch are others
        scaled = valid(hook(padded()), ("next", "reward")).flatten()
        torch.testing.assert_close(
            scaled, (torch.tensor(DATA) / returns.std(correction=0)).clamp(max=10.0)
        )
