from __future__ import annotations

import pytest
from torchrl import timeit

from hooktrainer import LogTiming
from hooktrainer.testing import tiny_trainer


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


def test_erase_starts_the_timers_anew():
    with timeit("a"):
        pass
    assert LogTiming(erase=True)(None)["time/a"] > 0
    assert LogTiming()(None).get("time/a", 0) == 0


def test_mean_or_total():
    for _ in range(4):
        with timeit("a"):
            pass
    mean, total = LogTiming()(None)["time/a"], LogTiming(percall=False)(None)["time/a"]
    assert total == pytest.approx(4 * mean)
