"""The hooks that log: episodes, frames, batch entries, timers, the update-to-data ratio."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl import timeit

from hooktrainer import CountFramesLog, LogScalar, LogTiming, ReplayBufferTrainer, UTDRHook
from hooktrainer.testing import tiny_trainer

# -- LogScalar -------------------------------------------------------------------------------------


REWARDS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]).unsqueeze(-1)


def batch(**extra) -> TensorDict:
    return TensorDict({"next": {"reward": REWARDS}, **extra}, [2, 3])


@pytest.mark.parametrize(
    ("reduction", "value"), [("mean", 4.0), ("sum", 24.0), ("min", 1.0), ("max", 9.0)]
)
def test_reductions(reduction, value):
    out = LogScalar(logname="r", reduction=reduction, include_std=False)(batch())
    assert out == {"r": value, "log_pbar": False}


def test_values_stay_tensors():
    out = LogScalar(logname="r")(batch())
    assert isinstance(out["r"], torch.Tensor)


def test_padding_is_left_out():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    out = LogScalar(logname="r")(batch(collector={"mask": mask}))
    assert out["r"].item() == pytest.approx(7 / 3)
    assert LogScalar(logname="r", reduction="max")(batch(collector={"mask": mask}))["r"] == 4.0


# -- CountFramesLog --------------------------------------------------------------------------------


def test_counts_frames_with_frame_skip(logger):
    trainer = tiny_trainer(frame_skip=4, total_frames=120, logger=logger, log_interval=40)
    CountFramesLog(4).register(trainer)
    trainer.train()
    assert logger.column("n_frames") == {40: 40.0, 80: 80.0, 120: 120.0}


# -- UTDRHook --------------------------------------------------------------------------------------


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


# -- LogTiming -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_timers_left():
    timeit.erase()
    yield
    timeit.erase()


def test_timers_are_logged(logger):
    trainer = tiny_trainer(logger=logger, total_frames=10)
    LogTiming(prefix="mine").register(trainer)

    def hook(batch):
        with timeit("inner"):
            pass

    trainer.register_op("batch_process", hook)
    trainer.train()
    assert logger.rows[0][1]["mine/inner"] > 0


EXAMPLES = {
    "CountFramesLog": lambda trainer: CountFramesLog(1),
    "UTDRHook": lambda trainer: UTDRHook(trainer),
}
