"""The hooks that react to a metric."""

from __future__ import annotations

import pytest
import torch
from other_rank import average_with

from hooktrainer import EarlyStopping, SaveOnBest
from hooktrainer.errors import ConfigError, StateMismatchError
from hooktrainer.testing import tiny_trainer

# -- EarlyStopping ---------------------------------------------------------------------------------


def run(scores, **arguments):
    """Log one score a batch of 10 frames; return the frames at which the run ended."""
    hook = EarlyStopping(monitor="score", **{"wait_for": 0, "patience": 20} | arguments)
    trainer = tiny_trainer(total_frames=10 * len(scores))
    values = iter(scores)

    def log(batch):
        score = next(values)
        return None if score is None else {"score": score}

    hook.register(trainer)  # before the hook that logs: it still sees the batch's own score
    trainer.register_op("post_steps_log", log)
    trainer.train()
    return trainer.collected_frames, hook, trainer


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "options", "frames"),
    [
        ([1, 2, 3, 4, 5, 6], {}, 60),
        ([5, 4, 3, 2, 1, 0], {"mode": "min"}, 60),
        ([1, 2, 3, 4, 5, 6], {"mode": "min"}, 30),
        ([1.0, 1.125, 1.5, 1.625, 2.0], {"min_delta": 0.25}, 50),
        ([1.0, 1.125, 1.25, 1.375, 1.5], {"min_delta": 0.25}, 30),
        ([NAN, 1, 2, 3, 4, 5], {"check_finite": False}, 60),
        ([1, NAN, NAN, NAN, NAN], {"check_finite": False}, 30),
        ([None, None, 1, 2, 3, 4], {"patience": 30}, 60),  # not logged yet
    ],
)
def test_it_stops_without_improvement(scores, options, frames):
    assert run(scores, **options)[0] == frames


def test_stops_after_patience_frames_without_improvement():
    frames, hook, trainer = run([1, 5, 4, 4, 4, 4])
    assert frames == 40  # best at 20, patience 20
    assert hook.best_score == 5
    assert hook.stop_reason == trainer.control.stop_reason
    assert "score did not improve on 5 for 20 frames" in hook.stop_reason


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_stops(bad):
    frames, hook, _ = run([1, bad, 3])
    assert frames == 20
    assert hook.stop_reason == f"score is non-finite: {bad}"


def test_a_metric_that_never_comes_is_warned_of_once():
    with pytest.warns(UserWarning, match="'score' was not logged in the first 20 frames") as seen:
        assert run([None] * 6)[0] == 60
    assert len(seen) == 1


@pytest.mark.parametrize(("patience", "frames"), [(20, 40), (30, 50)])
def test_a_stopped_run_stays_stopped_unless_with_more_patience(patience, frames):
    ended = run([1, 5, 4, 4, 4, 4])[2]
    resumed = tiny_trainer(total_frames=100)
    EarlyStopping(monitor="score", wait_for=0, patience=patience).register(resumed)
    resumed.register_op("post_steps_log", lambda batch: {"score": 4.0})
    resumed.load_state_dict(ended.state_dict())
    resumed.train()
    assert resumed.collected_frames == frames
    assert "did not improve on 5" in resumed.stop_reason


# -- SaveOnBest ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda: SaveOnBest("loss/loss"), "metric is loss/loss here and score in the state"),
        (lambda: SaveOnBest("score", "min"), "mode is min here and max in the state"),
    ],
)
def test_the_best_of_another_metric_is_not_taken_over(make, differs):
    saved = saved_at([1, 3])[1].trainer.state_dict()
    resumed = tiny_trainer(total_frames=30)
    make().register(resumed)
    with pytest.raises(StateMismatchError, match=differs):
        resumed.load_state_dict(saved)


@pytest.mark.parametrize("gain", [float("nan"), float("inf"), -1.0])
def test_a_least_gain_that_nothing_or_everything_reaches_is_refused(gain):
    with pytest.raises(ConfigError, match=r"EarlyStopping: min_delta=.*: pass a finite number"):
        EarlyStopping(min_delta=gain)


@pytest.mark.parametrize(("own", "best"), [(None, 4.0), (2.0, 3.0)])
def test_a_metric_is_the_mean_of_the_ranks_that_log_it(own, best):
    trainer, hook = tiny_trainer(total_frames=10), SaveOnBest("score")
    hook.average_over_ranks = average_with(torch.tensor([4.0, 1.0]))  # the other logs 4
    hook.register(trainer)
    trainer.register_op("post_steps_log", lambda batch: None if own is None else {"score": own})
    trainer.train()
    assert hook.best == best


EXAMPLES = {
    "EarlyStopping": lambda trainer: EarlyStopping(monitor="loss/loss", wait_for=0),
    "SaveOnBest": lambda trainer: SaveOnBest("loss/loss"),
}
