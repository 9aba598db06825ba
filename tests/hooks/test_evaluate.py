from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest
import torch

from hooktrainer import ConfigError, Evaluate, Every
from hooktrainer.hooks import evaluate
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.testing import tiny_trainer


class Corridor(gymnasium.Env):
    """Rewards 1 a step; an episode takes as many steps as its seed says, 1 to 5."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    opened = 0
    closed = 0

    def __init__(self) -> None:
        Corridor.opened += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 6))
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, dtype=np.float32), 1.0 + float(action), self.left == 0, False, {}

    def close(self):
        Corridor.closed += 1


def always(action: int):
    return lambda observation: torch.full((observation.shape[0],), action)


def corridor(policy=None, **arguments) -> Evaluate:
    return Evaluate(
        Corridor, policy or always(0), **{"every": Every(frames=20), "episodes": 6} | arguments
    )


def test_each_environment_plays_one_episode_by_hand():
    hook = corridor(always(1))
    metrics = hook.evaluate()
    lengths = metrics["eval/length"]
    assert metrics["eval/return"] == pytest.approx(2 * lengths)
    assert 1 <= lengths <= 5
    assert metrics["eval/episodes"] == 6
    assert metrics["eval/return_std"] > 0
    hook.close()


def test_actions_may_be_drawn_the_same_ones_at_each_evaluation():
    policy = CategoricalPolicy(mlp(2, 2))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()  # both actions are as probable
    mode, drawn = (corridor(policy, deterministic=chosen, episodes=32) for chosen in (True, False))
    best, torch_state = mode.evaluate(), torch.get_rng_state()
    first, second = drawn.evaluate(), drawn.evaluate()
    assert best["eval/return"] in (best["eval/length"], 2 * best["eval/length"])
    assert first["eval/length"] < first["eval/return"] < 2 * first["eval/length"]
    assert first["eval/return"] == second["eval/return"]
    assert torch.equal(torch_state, torch.get_rng_state())
    mode.close(), drawn.close()


@pytest.mark.parametrize(("frames", "evaluated"), [(50, [20, 40, 50]), (40, [20, 40])])
def test_it_evaluates_at_the_cadence_and_once_at_the_end(frames, evaluated, logger):
    trainer = tiny_trainer(logger=logger, total_frames=frames)
    corridor(stop_at=100.0).register(trainer)
    trainer.train()
    assert list(logger.column("eval/return")) == evaluated
    assert logger.steps == sorted(set(logger.steps))
    assert trainer.control.stop_reason is None


def test_it_stops_the_run_when_the_policy_is_good_enough():
    trainer = tiny_trainer()
    corridor(always(1), stop_at=1.0).register(trainer)
    trainer.train()
    assert trainer.collected_frames == 20
    assert "solved: eval/return" in trainer.control.stop_reason
    assert "over 6 episodes" in trainer.control.stop_reason


def drawing(observation):
    """A policy that draws from every generator."""
    random.random(), np.random.rand(), torch.rand(())
    return torch.zeros(len(observation), dtype=torch.int64)


def test_training_draws_the_same_numbers_with_and_without():
    def draws(with_evaluation: bool):
        trainer, drawn = tiny_trainer(seed=0), []
        if with_evaluation:
            corridor(drawing).register(trainer)
        trainer.register_op(
            "post_steps",
            lambda: drawn.append((torch.rand(()).item(), random.random(), np.random.rand())),
        )
        trainer.train()
        return drawn

    assert draws(True) == draws(False)


def test_two_of_them_need_two_groups(logger):
    trainer = tiny_trainer(logger=logger, total_frames=20)
    corridor(always(1)).register(trainer)
    with pytest.raises(ConfigError, match="'hard' logs eval/return, as 'evaluate' does already"):
        corridor().register(trainer, "hard")
    corridor(always(0), group="hard", stop_at=1.0).register(trainer, "hard")
    trainer.train()
    (easy,), (hard,) = (logger.column(f"{g}/return").values() for g in ("eval", "hard"))
    assert easy == 2 * hard
    assert {name.split("/")[1] for name in logger.rows[-1][1] if name.startswith("hard/")} == {
        "return", "return_std", "length", "episodes",
    }  # fmt: skip
    assert "solved: hard/return" in trainer.stop_reason


@pytest.mark.parametrize(
    ("first_frames", "stop_at", "frames"),
    [
        (50, 100.0, 50),  # solved, but more is required now
        (10, 1.0, 20),  # evaluated at the end alone: as the run that never ended
    ],
)
def test_a_resumed_run_continues_until_it_is_solved(first_frames, stop_at, frames, tmp_path):
    file = tmp_path / "state.pt"
    first = tiny_trainer(total_frames=first_frames, save_trainer_file=file)
    corridor(always(1), stop_at=1.0).register(first)
    first.train()
    second = tiny_trainer(total_frames=50)
    corridor(always(1), stop_at=stop_at).register(second)
    second.load_from_file(file)
    second.train()
    assert second.collected_frames == frames


class Long(Corridor):
    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.left = 200
        return observation, info


def test_an_episode_that_does_not_end_is_said(monkeypatch):
    monkeypatch.setattr(evaluate, "_MANY_STEPS", 128)
    hook = Evaluate(Long, always(0), every=Every(frames=20), episodes=2)
    with pytest.warns(UserWarning, match="2 of 2 episodes of an evaluation have not ended"):
        assert hook.evaluate()["eval/length"] == 200
    hook.close()


def example(trainer):
    return Evaluate("CartPole-v1", None, every=Every(frames=20), episodes=2)


def test_a_solved_run_is_saved_only_when_its_last_window_is_written(tmp_path, logger):
    """Killed in between, it would never write it: resumed, it has nothing left to do."""
    file = tmp_path / "state.pt"
    trainer = tiny_trainer(save_trainer_file=file, logger=logger)
    corridor(always(1), stop_at=1.0).register(trainer)
    logger.flush = lambda: written.append((logger.steps[-1], file.exists()))
    written = []
    trainer.train()
    assert (20, False) in written  # flushed before there is a checkpoint
    assert (20, True) not in written[: written.index((20, False))]
    assert file.exists()
