"""Collectors that write into a replay buffer and yield nothing: hooks see what was written."""

from __future__ import annotations

import pytest
import torch
import torchrl.trainers as theirs
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictMaxValueWriter, TensorDictReplayBuffer
from torchrl.envs import GymEnv, SerialEnv

from hooktrainer import ConfigError, CountFramesLog, ReplayBufferTrainer
from hooktrainer.testing import FakeCollector, tiny_trainer


class Writing(FakeCollector):
    """Writes its batches, numbered, into a buffer."""

    def __init__(self, buffer) -> None:
        super().__init__()
        self.replay_buffer = buffer

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            self.replay_buffer.extend(batch.reshape(-1).set("number", torch.full((10,), number)))
            yield None


def make_buffer(size=25, **options):
    return TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=4, **options)


@pytest.mark.parametrize("hook", [ReplayBufferTrainer, theirs.ReplayBufferTrainer])
def test_hooks_see_what_was_written_and_it_is_stored_once(hook, logger):
    buffer = make_buffer()
    trainer = tiny_trainer(collector=Writing(buffer), logger=logger)
    hook(buffer, 4).register(trainer)
    CountFramesLog(1).register(trainer)
    seen, sampled = [], []
    trainer.register_op("pre_steps_log", lambda td: seen.append(td["number"].tolist()))
    trainer.register_op("post_optim_log", lambda td: sampled.append(tuple(td.shape)))
    trainer.train()
    assert seen == [[n] * 10 for n in range(5)]  # also where the ring of 25 closes
    assert buffer.write_count == 50
    assert sampled == [(4,)] * 10
    assert logger.column("n_frames")[50] == 50


def test_a_batch_is_a_copy():
    buffer = make_buffer()
    trainer = tiny_trainer(collector=Writing(buffer), total_frames=10)
    trainer.register_op("batch_process", lambda td: td.set_("number", td["number"] - 7))
    trainer.train()
    assert buffer[:]["number"].tolist() == [0] * 10


@pytest.mark.parametrize("extend_buffer", [True, False])
@pytest.mark.parametrize("num_envs", [1, 2])
def test_torchrls_collector_counts_in_frames(num_envs, extend_buffer):
    def env():
        return GymEnv("CartPole-v1")

    buffer = make_buffer(60)
    collector = Collector(
        SerialEnv(2, env) if num_envs == 2 else env(),
        None,
        frames_per_batch=20,
        total_frames=100,
        replay_buffer=buffer,
        extend_buffer=extend_buffer,
    )
    trainer = tiny_trainer(collector=collector, total_frames=100, frame_skip=2)
    frames = []
    trainer.register_op("post_steps", lambda: frames.append(trainer.collected_frames))
    trainer.register_op("post_steps_log", lambda td: frames.append(td["next", "reward"].numel()))
    trainer.train()
    assert frames == [40, 20, 80, 20, 120, 20]


def test_a_writer_that_keeps_no_order_is_refused():
    writer = TensorDictMaxValueWriter(rank_key="number")
    trainer = tiny_trainer(collector=Writing(make_buffer(writer=writer)))
    with pytest.raises(ConfigError, match="with a TensorDictMaxValueWriter: let"):
        trainer.train()
