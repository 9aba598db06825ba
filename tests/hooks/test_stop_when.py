"""`StopWhen` and its conditions."""

from __future__ import annotations

import math
import random
import re
from copy import deepcopy

import pytest
import torch

from hooktrainer import Trainer, TrainerHookBase
from hooktrainer.algorithms import PPO
from hooktrainer.errors import ConfigError
from hooktrainer.hooks import StopWhen
from hooktrainer.hooks.stop_when import Condition


def example(trainer: Trainer) -> StopWhen:
    return StopWhen("loss > 1e9")


VALUES = {"loss/actor": 1.0, "loss/critic": math.nan, "train/return": 20.0, "losses": -5.0}
VALUES |= {"compare": 1.0}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("train/return < 100", True),
        ("train/return<20", False),
        ("train/return <= 2e1", True),
        ("train/return == 20.0", True),
        ("train/return != 20", False),
        ("not train/return > 3", False),
        ("finite(loss)", False),  # not of all
        ("finite(loss/actor)", True),
        ("not finite(loss)", True),
        ("loss > 0.5", True),  # of any; losses is another name
        ("loss < 0", False),
        ("losses < -4.5", True),
        ("nothing > 0", False),  # without a value nothing is compared
        ("not finite(nothing)", False),
        ("not nothing > 0", True),
        ("train/return > 3 & loss/actor > 3", False),
        ("train/return > 3 and loss/actor > 3 or losses < 0", True),
        ("train/return > 3 & (loss/actor > 3 | losses < 0)", True),
        ("losses > 0 | loss/actor > 3 & train/return > 3", False),
        ("losses < inf", True),
        ("(((losses > -inf)))", True),
        ("number > 3 | name > 3 | sign > 3 | compare < 3", True),  # which are names like others
    ],
)
def test_a_condition_holds_or_not(condition, holds):
    assert Condition(condition)(VALUES) is holds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("loss < number", "a number is missing before 'number'"),
        ("loss compare 3", "a comparison such as '<' is missing before 'compare'"),
        ("finite(and)", "a name is missing before 'and'"),
    ],
)
def test_a_name_in_place_of_another_word_is_refused(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        Condition(text)


def test_it_tells_its_names():
    condition = Condition("not finite(loss) | train/return < 3 & frames > 10")
    assert condition.names == ["loss", "train/return", "frames"]
    assert condition.reads("loss/actor")
    assert not condition.reads("losses")


class Keep(TrainerHookBase):
    """Keeps the parameters after every optimizer step."""

    at = "post_optim"
    is_saved = False

    def __init__(self) -> None:
        self.parameters: dict[int, list[torch.Tensor]] = {}

    def __call__(self) -> None:
        own = self.trainer.loss_module.parameters()
        self.parameters[self.trainer.optim_count] = [one.detach().clone() for one in own]


class After(TrainerHookBase):
    """Logs a metric, and ends the run, at the end of a batch."""

    at = "post_steps_log"
    is_saved = False

    def __init__(self, frames: float = math.inf) -> None:
        self.frames = frames

    def __call__(self, batch: object) -> dict[str, float]:
        if self.trainer.progress.frames >= self.frames:
            self.trainer.request_stop("enough")
        return {"mine/after": 1.0, "mine/zero": 0.0}


def trained(*hooks: TrainerHookBase, state: dict | None = None) -> Trainer:
    trainer = PPO(
        env="CartPole-v1", tuned=False, num_cells=(8,), num_envs=4, steps_per_batch=16,
        num_epochs=2, mini_batch_size=32, eval_episodes=0, progress_bar=False, total_frames=1024,
        hooks=hooks,
    ).trainer()  # fmt: skip
    if state is not None:
        trainer.load_state_dict(state)
    trainer.train()
    return trainer


@pytest.mark.parametrize("number", [pytest.param(200, marks=pytest.mark.slow), 5])
def test_a_run_stops_after_any_step_from_any_state_with_the_same_bits(number):
    straight, states = Keep(), {}
    for frames in (64, 256, 512):
        trainer = trained(After(frames))
        states[trainer.optim_count] = deepcopy(trainer.state_dict())
    steps = trained(straight).optim_count
    rng = random.Random(3)
    for _ in range(number):
        start = rng.choice(list(states))
        step = rng.randrange(start + 1, steps)
        stopped = trained(StopWhen(f"optim_steps > {step}"), state=states[start])
        assert stopped.optim_count == step
        own = stopped.loss_module.parameters()
        for ours, theirs in zip(own, straight.parameters[step], strict=True):
            assert ours.equal(theirs), (start, step)


def test_a_name_that_was_never_logged_is_told(capsys):
    trained(StopWhen("train/retrun < 3"), After(64))
    assert "'train/retrun' was never logged; there were " in capsys.readouterr().out


def test_a_name_that_is_like_a_metric_is_asked_for_before_the_end(capsys):
    trained(StopWhen("mine/zeros > 0"), After(64))
    first, *others = capsys.readouterr().out.splitlines()
    assert "'mine/zeros' was not logged so far. Did you mean mine/zero" in first
    assert len(others) == 1
    assert "was never logged" in others[0]


def test_a_metric_that_was_always_zero_was_logged(capsys):
    trained(StopWhen("mine/zero > 0"), After(64))
    assert "was never logged" not in capsys.readouterr().out


def test_the_condition_of_a_batch_stops_at_its_end():
    trainer = trained(StopWhen("mine/after > 0"), After())
    assert (trainer.progress.batches, trainer.optim_count) == (1, 4)
    assert "holds after optimizer step 4, after 64 frames: mine/after = 1" in trainer.stop_reason


def test_where_it_holds_on_another_rank_this_one_makes_no_step_either():
    """Else one waits for gradients that the other never sends."""
    stop = StopWhen("loss/objective > 1e9")
    calls = 0

    def average(tensors: list[torch.Tensor]) -> None:
        nonlocal calls
        calls += 1
        tensors[0].add_(calls == 3).div_(2)

    stop.average_over_ranks = average
    trainer = trained(stop, After(64))
    assert trainer.optim_count == 2
    assert calls == 3
    assert trainer.stop_reason == "enough"  # the other's reason comes when the ranks meet
