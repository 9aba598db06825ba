from __future__ import annotations

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement

from hooktrainer import ReplayBufferTrainer
from hooktrainer.testing import tiny_trainer


def buffer(size: int = 100, **arguments) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=LazyTensorStorage(size), **{"batch_size": 4} | arguments)


def numbered(*shape: int, start: int = 0) -> TensorDict:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape) + start
    flags = torch.zeros(*shape, 1, dtype=torch.bool)
    return TensorDict({"x": x, "next": {"truncated": flags, "done": flags.clone()}}, shape)


def test_batches_are_stored_and_samples_trained_on():
    shapes = []
    replay = buffer()
    trainer = tiny_trainer(total_frames=20)
    ReplayBufferTrainer(replay, flatten_tensordicts=True).register(trainer)
    trainer.register_op("post_optim_log", lambda td: shapes.append(tuple(td.shape)))
    trainer.train()
    assert len(replay) == 20
    assert shapes == [(4,)] * 4


def test_rows_may_be_padded():
    replay = buffer()
    out = ReplayBufferTrainer(replay, max_dims=[-1, 8]).extend(numbered(3, 5))
    assert out.shape == (3, 8)
    assert out["x"][0].tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


def test_the_last_step_of_each_row_is_marked_truncated():
    replay = buffer()
    ReplayBufferTrainer(replay, flatten_tensordicts=True).extend(numbered(2, 3))
    expected = [False, False, True, False, False, True]
    assert replay[:]["next", "truncated"].flatten().tolist() == expected
    assert replay[:]["next", "done"].flatten().tolist() == expected


def test_iterating_ends_the_inner_loop_and_begins_again():
    seen = []
    replay = buffer(sampler=SamplerWithoutReplacement())
    trainer = tiny_trainer(total_frames=10, optim_steps_per_batch=None, num_epochs=3)
    ReplayBufferTrainer(replay, flatten_tensordicts=True, iterate=True).register(trainer)
    trainer.register_op("post_optim_log", lambda td: seen.append(len(td)))
    trainer.train()
    epochs = [seen[i : i + len(seen) // 3] for i in range(0, len(seen), len(seen) // 3)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert 2 <= len(epochs[0]) <= 3  # 10 steps in samples of 4


def test_a_pass_that_ends_with_its_batch_is_followed_by_another_in_the_next():
    replay = buffer(10, batch_size=5, sampler=SamplerWithoutReplacement())
    trainer = tiny_trainer(total_frames=30, optim_steps_per_batch=2)
    ReplayBufferTrainer(replay, flatten_tensordicts=True, iterate=True).register(trainer)
    trainer.train()
    assert trainer.optim_count == 6


def test_a_buffer_created_lazily_is_restored():
    one, other = (ReplayBufferTrainer(buffer(), flatten_tensordicts=True) for _ in range(2))
    one.extend(numbered(2, 5))
    other.load_state_dict(one.state_dict())
    assert (other.replay_buffer[:] == one.replay_buffer[:]).all()
    other.extend(numbered(2, 5, start=100))
    assert len(one.replay_buffer) == 10
    assert one.replay_buffer[:]["x"].tolist() == list(range(10))
    assert len(other.replay_buffer) == 20


def example(trainer):
    return ReplayBufferTrainer(buffer(30), flatten_tensordicts=True)
