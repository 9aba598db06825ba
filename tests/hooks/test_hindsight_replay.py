"""Hindsight replay: whole episodes are stored, goals are those their episode achieved."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from any_env import AnyEnv
from goal_envs import BitFlip
from gymnasium import spaces
from other_rank import average_with
from resuming import whole_and_resumed
from tensordict import TensorDict

from hooktrainer import ConfigError, HindsightReplay, ReplayBufferTrainer, Trainer
from hooktrainer.algorithms import DQN
from hooktrainer.errors import SkipOptimStep
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import tiny_trainer

KEYS = ["observation", "desired_goal", ("next", "desired_goal"), ("next", "reward")]
KEYS += [("next", "terminated")]


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    """How far they are apart, so that a test sees which ones it was called with."""
    assert len(info) == len(desired)
    return (achieved - desired)[:, 0]


def make_hook(
    strategy: Any = "future", size: int = 100, batch_size: int = 50, **options: Any
) -> HindsightReplay:
    buffer = ReplayBuffer(size, batch_size=batch_size, keys=KEYS)
    options = {"compute_reward": reward, **options}
    return HindsightReplay(buffer, strategy=strategy, **options)


def steps(first: int, time: int, ends: tuple[int, ...] = (), envs: int = 1) -> TensorDict:
    """Step n of environment e achieves the goal n + 1000 e; episodes end after the steps given."""
    number = (torch.arange(first, first + time) + 1000 * torch.arange(envs)[:, None]).float()
    number = number.unsqueeze(-1)
    done = torch.isin(number % 1000, torch.tensor(ends, dtype=torch.float32))
    goal = torch.full_like(number, -1.0)
    following = {"achieved_goal": number, "desired_goal": goal.clone(), "reward": goal.clone()}
    following |= {"terminated": torch.zeros_like(done), "done": done}
    content = {"observation": number.clone(), "desired_goal": goal, "next": following}
    return TensorDict(content, [envs, time])


def example_trainer() -> Trainer:
    trainer = small_run()
    trainer.remove_hook("replay_buffer")
    return trainer


def example(trainer: Trainer) -> HindsightReplay:
    loss: Any = trainer.loss_module
    buffer = ReplayBuffer(200, batch_size=8, keys=loss.in_keys)
    env = BitFlip(4)
    return HindsightReplay(buffer, env.compute_reward, env.compute_terminated)


def small_run(**options: Any) -> Trainer:
    fields = {"num_envs": 2, "steps_per_batch": 6, "optim_steps_per_batch": 2, "batch_size": 8}
    fields |= {"num_cells": (8,), "init_random_frames": 0, "buffer_size": 40, "total_frames": 96}
    fields |= {"eval_episodes": 0, "tuned": False, "progress_bar": False, "seed": 3, **options}
    return DQN(env=partial(BitFlip, 4), her="future", **fields).trainer()


def stored(hook: HindsightReplay) -> list[float]:
    storage: Any = hook.replay_buffer.state_dict()["storage"]
    return [] if storage is None else storage["observation"].flatten().tolist()


def test_episodes_are_stored_when_they_end_over_batches_and_environments():
    hook = make_hook()
    hook.register(tiny_trainer())
    batch = steps(0, 3, envs=2)
    assert hook.extend(batch) is batch
    assert stored(hook) == []
    with pytest.raises(SkipOptimStep):
        hook.sample(batch)
    hook.extend(steps(3, 4, ends=(4,), envs=2))
    assert stored(hook) == [0, 1, 2, 3, 4, 1000, 1001, 1002, 1003, 1004]
    hook.extend(steps(7, 3, ends=(7, 9), envs=2))
    assert stored(hook)[10:] == [5, 6, 7, 8, 9, 1005, 1006, 1007, 1008, 1009]
    # Padding is no step.
    padded = steps(10, 4, ends=(11, 13), envs=2)
    padded["collector"] = TensorDict(
        mask=torch.tensor([[1, 1, 0, 0]] * 2).bool(), batch_size=[2, 4]
    )
    hook.extend(padded)
    assert stored(hook)[20:] == [10, 11, 1010, 1011]


def test_no_rank_steps_before_all_have_an_episode():
    """Else it waits for gradients that the others never send."""
    hook, batch = make_hook(), steps(0, 3, ends=(2,))
    hook.register(tiny_trainer())
    hook.extend(batch)
    hook.average_over_ranks = average_with(0.0)
    with pytest.raises(SkipOptimStep):
        hook.sample(batch)
    hook.average_over_ranks = average_with(1.0)
    assert len(hook.sample(batch)) == 50
    hook.average_over_ranks = average_with()  # once all have one, they need not meet
    assert len(hook.sample(batch)) == 50


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_were_achieved_by_the_strategy_in_the_episode(strategy):
    hook = make_hook(strategy, batch_size=3_000, compute_terminated=lambda a, d, i: (a == d)[:, 0])
    hook.extend(steps(0, 9, ends=(3, 8)))
    sample = hook.sample(steps(0, 1))
    at, goal = sample["observation"][:, 0], sample["desired_goal"][:, 0]
    replaced = torch.arange(3_000) < 2_400  # 4 of 5
    assert (goal[~replaced] == -1).all()
    assert (sample["next", "reward"][~replaced] == -1).all()
    begin, end = torch.where(at < 4, 0, 4), torch.where(at < 4, 3, 8)
    low = {"future": at, "final": end, "episode": begin}[strategy]
    found = {(a, g) for a, g in zip(at[replaced].tolist(), goal[replaced].tolist(), strict=True)}
    possible = {
        (a, float(g))
        for a, first, last in zip(at.tolist(), low.tolist(), end.tolist(), strict=True)
        for g in range(int(first), int(last) + 1)
    }
    assert found == possible
    assert torch.equal(sample["next", "desired_goal"], sample["desired_goal"])
    now = (at - goal)[replaced]
    assert torch.equal(sample["next", "reward"][replaced, 0], now)
    assert torch.equal(sample["next", "terminated"][replaced, 0], now == 0)
    assert not sample["next", "terminated"][~replaced].any()
    assert "episode" not in sample.keys()  # noqa: SIM118


# Of HerReplayBuffer of Stable-Baselines3 2.9.2, for these steps: in 2,400 of 3,000 transitions
# a goal was replaced. Each of them has its observation, goal and reward.
THEIRS = {
    "future": "00+0 01-1 11+0 22+0 23-1 24-2 33+0 34-1 44+0",
    "final": "01-1 11+0 24-2 34-1 44+0",
    "episode": "00+0 01-1 10+1 11+0 22+0 23-1 24-2 32+1 33+0 34-1 42+2 43+1 44+0",
}


@pytest.mark.parametrize("strategy", THEIRS)
def test_goals_and_rewards_are_those_of_stable_baselines3(strategy):
    hook = make_hook(strategy, batch_size=3_000)
    hook.extend(steps(0, 5, ends=(1, 4)))
    sample = hook.sample(steps(0, 1))
    entries = [sample[key] for key in ("observation", "desired_goal", ("next", "reward"))]
    rows = torch.cat(entries, -1).tolist()
    found = [f"{at:.0f}{goal:.0f}{value:+.0f}" for at, goal, value in rows if goal >= 0]
    assert sorted(set(found)) == THEIRS[strategy].split()
    assert len(found) == 2_400


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_of_episodes_that_are_overwritten_in_part(strategy):
    hook = make_hook(strategy, size=10, batch_size=1_000)
    hook.extend(steps(0, 24, ends=(6, 13, 20, 23)))  # the rows are 14 to 23
    sample = hook.sample(steps(0, 1))
    at, goal = sample["observation"][:800, 0], sample["desired_goal"][:800, 0]
    assert set(at.tolist()) == set(range(14, 24))
    same = (at <= 20) == (goal <= 20)
    assert same.all()
    assert (goal >= (14 if strategy == "episode" else at)).all()
    hook.extend(steps(24, 3, ends=(26,)))  # now 17 to 26
    sample = hook.sample(steps(0, 1))
    at, goal = sample["observation"][:800, 0], sample["desired_goal"][:800, 0]
    assert goal.min() >= 17
    assert torch.equal(at <= 20, goal <= 20)
    if strategy == "episode":
        assert {(a, g) for a, g in zip(at.tolist(), goal.tolist(), strict=True)} >= {(20.0, 17.0)}


def test_functions_of_one_goal_are_called_row_by_row():
    def one(achieved, desired, info):
        assert achieved.shape in ((1,), (40, 1))
        return float(abs(achieved - desired).sum())

    def never(achieved, desired, info):
        return False

    hook = make_hook(batch_size=50, compute_reward=one, compute_terminated=never)
    hook.extend(steps(0, 9, ends=(8,)))
    sample = hook.sample(steps(0, 1))
    distance = (sample["observation"] - sample["desired_goal"]).abs()
    assert torch.equal(sample["next", "reward"][:40], distance[:40])
    hook = make_hook(compute_reward=lambda achieved, desired, info: [1.0, 2.0])
    hook.extend(steps(0, 9, ends=(8,)))
    with pytest.raises(ConfigError, match="for 40 goals: let it return one number for each"):
        hook.sample(steps(0, 1))


def test_an_episode_that_never_ends_and_one_that_was_left():
    hook = make_hook(size=10)
    for first in range(0, 24, 3):
        hook.extend(steps(first, 3))
    assert sorted(stored(hook)) == list(range(14, 24))
    hook = make_hook()
    hook.extend(steps(0, 3))
    begins = steps(7, 2, ends=(8,))  # the environments began new episodes
    begins["next", "step_count"] = torch.tensor([[[1], [2]]])
    hook.extend(begins)
    assert stored(hook) == [7, 8]
    hook.extend(steps(0, 3))
    hook.extend(steps(3, 2, ends=(4,), envs=2))
    assert stored(hook)[2:] == [3, 4, 1003, 1004]


def test_a_resumed_run_is_the_whole_one():
    whole, resumed = whole_and_resumed(small_run)
    assert whole.optim_count == resumed.optim_count > 0
    hooks = [trainer.registry.modules["replay_buffer"] for trainer in (whole, resumed)]
    assert any(one is not None for one in hooks[0]._open)
    for ours, theirs in zip(*(t.loss_module.parameters() for t in (whole, resumed)), strict=True):
        assert torch.equal(ours, theirs)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="strategy='past'"):
        make_hook("past")
    with pytest.raises(ConfigError, match="goals=0"):
        make_hook(goals=0)
    with pytest.raises(ConfigError, match=r"keys=loss_module\.in_keys"):
        HindsightReplay(ReplayBuffer(10), reward)
    with pytest.raises(ConfigError, match=r"CartPole-v1 has none: .* Leave the option out"):
        DQN(env="CartPole-v1", her="future", total_frames=100).trainer()
    pair = partial(AnyEnv, spaces.Tuple([spaces.Box(-1, 1, (2,))] * 2), spaces.Discrete(2))
    with pytest.raises(ConfigError, match="no Dict with achieved_goal"):
        DQN(env=pair, her="future", total_frames=100).trainer()
    with pytest.raises(ConfigError, match="and memory='gru' do not work together"):
        small_run(memory="gru", batch_size=32, buffer_size=64)

    class WithoutReward(BitFlip):
        compute_reward = None  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="no compute_reward"):
        DQN(env=WithoutReward, her="final", total_frames=100).trainer()
    plain = DQN(env=BitFlip, total_frames=100, progress_bar=False).trainer()
    assert type(plain.registry.modules["replay_buffer"]) is ReplayBufferTrainer
