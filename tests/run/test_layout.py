"""What the options of a run make of the processes beside it."""

from __future__ import annotations

import pytest

from hooktrainer import ConfigError, OverlappedCollector, VectorCollector
from hooktrainer.run.config import RunConfig
from hooktrainer.run.ranks import Ranks
from hooktrainer.run.run import Layout
from hooktrainer.testing import tiny_trainer


@pytest.fixture
def trainer():
    trainer = tiny_trainer(collector=VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=4))
    yield trainer
    trainer.shutdown()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_no_time_to_answer_is_refused(seconds):
    with pytest.raises(ConfigError, match=r"--timeout .*: give more than 0 seconds"):
        Layout(RunConfig(total_frames=1, timeout=seconds), Ranks())


def test_a_process_that_collects_ahead_is_waited_for_as_long_as_asked(trainer):
    Layout(RunConfig(total_frames=1, overlap=1, timeout=7.0), Ranks()).apply(trainer)
    assert isinstance(trainer.collector, OverlappedCollector)
    assert trainer.collector._timeout == 7.0


def test_so_are_those_that_step_environments(trainer):
    Layout(RunConfig(total_frames=1, workers=2, timeout=70.0), Ranks()).apply(trainer)
    children = trainer.collector._group._pool
    assert [child.timeout for child in children] == [70.0, 70.0]
