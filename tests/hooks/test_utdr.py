from __future__ import annotations

from hooktrainer import ReplayBufferTrainer, UTDRHook
from hooktrainer.testing import tiny_trainer


def test_without_a_buffer_it_is_steps_per_transition(logger):
    trainer = tiny_trainer(logger=logger, frame_skip=4, total_frames=80, log_interval=40)
    UTDRHook(trainer).register(trainer)
    trainer.train()
    # seen before the steps of the batch: 0 updates of 10, then 2 of 20
    assert logger.column("write_count") == {40: 10.0, 80: 20.0}
    assert logger.column("update_count") == {40: 0.0, 80: 2.0}
    assert logger.column("utd_ratio") == {40: 0.0, 80: 0.1}


def test_with_a_buffer_it_counts_the_samples(logger):
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    trainer = tiny_trainer(logger=logger, total_frames=20, log_interval=10)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(15), batch_size=5)
    ReplayBufferTrainer(replay, flatten_tensordicts=True).register(trainer)
    UTDRHook(trainer).register(trainer)
    trainer.train()
    assert logger.column("write_count") == {10: 10.0, 20: 20.0}  # though it holds 15
    assert logger.column("utd_ratio") == {10: 0.0, 20: 5 * 2 / 20}


def test_before_any_data_there_is_no_ratio():
    trainer = tiny_trainer()
    assert UTDRHook(trainer)(None) == {}


def example(trainer):
    return UTDRHook(trainer)
