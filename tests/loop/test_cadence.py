from __future__ import annotations

import pytest

from hooktrainer import ConfigError, Every
from hooktrainer.loop import Progress
from hooktrainer.testing import FakeCollector, tiny_trainer


def fired(every: Every, counts: list[float], unit: str = "frames") -> list[float]:
    progress = Progress()
    result = []
    for count in counts:
        setattr(progress, unit, count)
        if every.due(progress):
            result.append(count)
    return result


def test_due_after_a_multiple_is_skipped():
    # 96-frame batches: no count is a multiple of 100
    counts = [96 * n for n in range(1, 9)]
    assert fired(Every(frames=100), counts) == [192, 288, 384, 480, 576, 672, 768]


def test_fractions_of_epochs_are_due_at_their_multiples():
    counts = [n // 10 + n % 10 / 10 for n in range(1, 31)]
    assert fired(Every(epochs=0.1), counts, "epochs") == counts


def test_at_start_the_first_check_is_due():
    assert fired(Every(frames=100, at_start=True), [30, 60, 90, 120]) == [30, 120]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"frames": 1, "batches": 1}, "exactly one"),
        ({"frames": 0}, "positive"),
        ({"frames": -5}, "frames=-5"),
        ({"frames": "100"}, "frames='100'"),
        ({"batches": True}, "positive"),
        ({"seconds": float("nan")}, "positive"),
    ],
)
def test_bad_intervals(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Every(**arguments)


def test_phase_is_saved_and_restored():
    every, progress = Every(frames=100), Progress(frames=250)
    assert every.due(progress)
    other = Every(frames=100)
    other.load_state_dict(every.state_dict())
    progress.frames = 299
    assert not other.due(progress)
    progress.frames = 300
    assert other.due(progress)


@pytest.mark.parametrize(
    ("interval", "due_next"),
    [(100, 300), (40, 240), (250, 250), (1_000, 1_000)],  # 200 was the last multiple crossed
)
def test_another_interval_counts_on_from_the_last_multiple_crossed(interval, due_next):
    every = Every(frames=100)
    every.due(Progress(frames=200))
    other = Every(frames=interval)
    other.load_state_dict(every.state_dict())
    assert not other.due(Progress(frames=due_next - 1))
    assert other.due(Progress(frames=due_next))


@pytest.mark.parametrize(("num_envs", "time"), [(1, 20), (2, 10), (20, 1)])
def test_frequency_does_not_depend_on_the_number_of_environments(num_envs, time):
    seen = []
    trainer = tiny_trainer(collector=FakeCollector(num_envs=num_envs, time=time), total_frames=200)
    trainer.register_op(
        "post_steps", lambda: seen.append(trainer.collected_frames), every=Every(frames=50)
    )
    trainer.train()
    assert seen == [60, 100, 160, 200]


def test_a_cadence_gates_each_kind_of_point():
    seen = []
    trainer = tiny_trainer(total_frames=40)
    every = Every(optim_steps=4)
    trainer.register_op("process_optim_batch", lambda td: (seen.append("sub"), td)[1], every=every)
    trainer.register_op("post_optim_log", lambda td: seen.append("log"), every=every)
    trainer.register_op("post_optim", lambda: seen.append("act"), every=every)
    trainer.train()
    # 8 steps; the counter is raised after process_optim_batch, so it sees step 4 at the fifth pass
    assert seen == ["act", "log", "sub", "act", "log"]


@pytest.mark.parametrize("unit", ["samples", "tokens"])
def test_what_a_collector_does_not_count_is_refused(unit):
    trainer = tiny_trainer()
    trainer.register_op("post_steps", lambda: None, every=Every(**{unit: 20}))
    with pytest.raises(ConfigError, match=rf"Every\({unit}=20\): FakeCollector counts frames"):
        trainer.train()
