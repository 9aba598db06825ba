from __future__ import annotations

import math

from hooktrainer import SaveOnBest
from hooktrainer.testing import tiny_trainer


def saved_at(scores, **arguments):
    """Log one score a batch of 10 frames; return the frames at which a save was asked for."""
    trainer, values, saves = tiny_trainer(total_frames=10 * len(scores)), iter(scores), []
    hook = SaveOnBest("score", **arguments)
    hook.register(trainer)  # before the hook that logs: it still sees the batch's own score
    trainer.register_op("post_steps_log", lambda batch: {"score": next(values)})
    trainer.request_save = lambda: saves.append(trainer.collected_frames)
    trainer.train()
    return saves, hook


def test_every_new_best_is_saved():
    saves, hook = saved_at([1, 3, 2, 3, 5])
    assert saves == [10, 20, 50]
    assert hook.best == 5


def test_smaller_is_better():
    assert saved_at([3, 4, 2, 2, 1], mode="min")[0] == [10, 30, 50]


def test_nan_is_never_the_best():
    saves, hook = saved_at([math.nan, 1, math.nan, 2])
    assert saves == [20, 40]
    assert hook.best == 2


def example(trainer):
    return SaveOnBest("loss/loss")
