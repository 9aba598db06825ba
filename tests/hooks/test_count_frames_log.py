from __future__ import annotations

import torch
from tensordict import TensorDict

from hooktrainer import CountFramesLog
from hooktrainer.testing import tiny_trainer


def test_counts_frames_with_frame_skip(logger):
    trainer = tiny_trainer(frame_skip=4, total_frames=120, logger=logger, log_interval=40)
    CountFramesLog(4).register(trainer)
    trainer.train()
    assert logger.column("n_frames") == {40: 40.0, 80: 80.0, 120: 120.0}


def test_a_window_shows_the_last_count_not_the_mean(logger):
    trainer = tiny_trainer(logger=logger)
    CountFramesLog(1).register(trainer)
    trainer.train()
    assert logger.column("n_frames") == {10: 10.0, 50: 50.0}


def test_padding_is_not_counted():
    hook = CountFramesLog(2)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    batch = TensorDict({"collector": {"mask": mask}}, [2, 3])
    assert hook(batch)["n_frames"] == 6
    assert hook(batch) == {"n_frames": 12, "log_pbar": False}


def example(trainer):
    return CountFramesLog(1)
