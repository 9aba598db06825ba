"""The policy of a decision transformer: what it remembers, asks for and saves; data it takes."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from marks import slow_except
from remembering import Recall
from tensordict import TensorDict
from test_algorithms import make_dataset

from hooktrainer import Evaluate, Every, VectorCollector, load_policy, play_episodes
from hooktrainer.algorithms import DT
from hooktrainer.collect import LastReward
from hooktrainer.collect.worlds.classic_control import CartPoleWorld
from hooktrainer.data import Dataset
from hooktrainer.errors import ConfigError
from hooktrainer.loop import Progress
from hooktrainer.policies import PolicyRecorder

SMALL = {"width": 8, "depth": 1, "context_length": 4, "batch_size": 8, "total_frames": 64}
SMALL |= {"eval_episodes": 2, "progress_bar": False, "tuned": False}


class Paid(gym.Env):
    """Episodes of 3 and of 6 steps by turns; the reward is the action's number, counted from 1."""

    observation_space = spaces.Box(-10.0, 10.0, (2,))

    def __init__(self, continuous: bool = False) -> None:
        self.action_space = spaces.Box(1.0, 3.0, (1,)) if continuous else spaces.Discrete(3)
        self.continuous = continuous
        self.time, self.played = 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.played = 0, self.played + 1
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        reward = float(action[0]) if self.continuous else float(action) + 1.0
        return self._observe(), reward, self.time == (3, 6)[self.played % 2], False, {}

    def _observe(self):
        return np.array([self.time, self.np_random.normal()], np.float32)


def paid(continuous: bool = False, frames: int = 60) -> Dataset:
    torch.manual_seed(0)
    collector = VectorCollector(partial(Paid, continuous), num_envs=1, frames_per_batch=frames)
    batch = collector.collect()[0]
    collector.shutdown()
    return Dataset(batch.select("observation", "action", "next"))


def trained(continuous: bool = False, **options):
    dataset = options.pop("dataset", None) or paid(continuous)
    env = partial(Paid, continuous)
    trainer = DT(env=env, dataset=dataset, **{**SMALL, **options}).trainer()
    trainer.train()
    return trainer


def test_the_last_reward_is_observed():
    env = LastReward(Paid())
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert observation["last_reward"].tolist() == [0.0]
    for action in (2, 0):
        observation, reward, *_ = env.step(action)
        assert env.observation_space.contains(observation)
        assert observation["last_reward"].tolist() == [reward] == [action + 1.0]
    assert env.reset()[0]["last_reward"].tolist() == [0.0]


def test_the_last_reward_is_the_sum_where_actions_are_repeated(tmp_path):
    def make():
        return gym.wrappers.TimeLimit(LastReward(Paid()), 99)

    collector = VectorCollector(make, num_envs=2, frames_per_batch=24, frame_skip=2)
    following = collector.collect()["next"]
    collector.shutdown()
    assert torch.equal(following["last_reward"], following["reward"])
    assert {2.0, 4.0, 6.0} <= set(following["reward"].flatten().tolist())

    policy = trained().loss_module.actor_network
    recorder = PolicyRecorder(tmp_path, policy, make, frame_skip=2)
    recorder.save(Progress(frames=0, optim_steps=0, seconds=1.0))
    steps = []
    play_episodes(load_policy(tmp_path / f"step_{0:012d}"), 0, 2, steps.append, env=make())
    for before, step in pairwise(steps):
        reward = step.return_ - before.return_ if step.index else 0.0
        assert step.observation["last_reward"].item() == reward
    assert len(steps) > 5


@pytest.mark.parametrize("continuous", [False, True])
def test_it_acts_by_the_last_steps_and_what_is_left_of_the_return(continuous):
    trainer = trained(continuous, target_return=11.0)
    policy = trainer.loss_module.actor_network
    collector = VectorCollector(
        lambda: LastReward(Paid(continuous)), policy, num_envs=2, frames_per_batch=44, seed=3
    )
    batches = [collector.collect() for _ in range(2)]  # the second begins within episodes
    collector.shutdown()
    for env in range(2):
        steps = torch.cat([batch[env] for batch in batches])
        begin = 0
        for at in range(len(steps)):
            rewards = steps["next", "reward"][begin:at, 0]
            first = max(begin, at - 3)
            own = slice(first, at + 1)
            spent = torch.cat([torch.zeros(1), rewards.cumsum(0)])[first - begin :]
            out = policy.network(
                (11.0 - spent).view(1, -1, 1),
                steps["observation"][own].unsqueeze(0),
                policy.encoded(steps["action"][own]).float().unsqueeze(0),
                torch.arange(first - begin, at + 1 - begin).unsqueeze(0),
                torch.ones(1, at + 1 - first, dtype=torch.bool),
            )[0, -1]
            if continuous:
                torch.testing.assert_close(steps["action"][at], 2.0 + out.tanh())
            else:  # they are sampled, so that only what leads to them can be compared
                left = steps["memory", "return_to_go"][at] - steps["last_reward"][at]
                assert left.item() == pytest.approx(11.0 - spent[-1].item())
            if steps["next", "done"][at]:
                begin = at + 1


def test_later_steps_than_any_of_the_data():
    policy = trained().loss_module.actor_network
    assert policy.network.embed_step.num_embeddings == 6
    collector = VectorCollector(lambda: LastReward(Long()), policy, num_envs=1, frames_per_batch=20)
    assert collector.collect()["action"].shape == (1, 20)
    collector.shutdown()


class Long(Paid):
    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


@pytest.mark.parametrize("continuous", slow_except([False, True], False))
def test_it_returns_what_it_is_asked_for(continuous):
    """In 3 steps at least 3 and at most 9, in 6 steps from 6 to 18: the data are at random."""
    options = {"total_frames": 32 * 200, "batch_size": 32, "lr": 3e-3, "width": 16}
    trainer = trained(continuous, dataset=paid(continuous, 2_000), eval_episodes=0, **options)
    policy = trainer.loss_module.actor_network
    reached = []
    for target in (5.0, 16.0):
        policy.target_return = target
        env = partial(seen_with_rewards, continuous)
        evaluation = Evaluate(env, policy, every=Every(frames=1), episodes=20, frame_skip=1)
        reached.append(evaluation.evaluate()["eval/return"])
        evaluation.close()
    assert reached[1] - reached[0] > 2.0


def seen_with_rewards(continuous: bool) -> gym.Env:
    return LastReward(Paid(continuous))


def test_the_best_episode_of_the_data_is_asked_for_by_default():
    dataset = paid()
    best = trained(dataset=dataset).loss_module.actor_network.target_return
    reward = dataset.transitions["next", "reward"][:, 0].tolist()
    ends = dataset.transitions["next", "done"][:, 0].tolist()
    returns, total = [], 0.0
    for value, end in zip(reward, ends, strict=True):
        total += value
        if end:
            returns.append(total)
            total = 0.0
    assert best == max(returns)


def test_the_saved_policy_acts_as_the_live_one_and_needs_no_trust(tmp_path):
    trainer = DT(env="Pendulum-v1", dataset=make_dataset(), **SMALL).trainer()
    trainer.train()
    live = trainer.loss_module.actor_network
    recorder = PolicyRecorder(tmp_path, live, trainer.registry.modules["evaluate"].env)
    recorder.save(Progress(frames=0, optim_steps=0, seconds=1.0))
    loaded = load_policy(tmp_path / f"step_{0:012d}")
    assert loaded.recurrent
    assert loaded.interface.reads == "observation: float32[3], last_reward: float32[1]"
    assert live.target_return == -300.0  # the better of the data's two
    env = loaded.make_env()
    hidden = live.make_tensordict_primer()(TensorDict({}, [])).expand(1)
    observation, _ = env.reset(seed=0)
    for _ in range(7):
        seen = {key: torch.as_tensor(value)[None] for key, value in observation.items()}
        data = TensorDict({**seen, **hidden}, batch_size=[1])
        live(data)
        action = loaded(observation)
        np.testing.assert_allclose(action, data["action"][0].numpy(), atol=1e-5)
        hidden = data["next"]
        observation, *_ = env.step(action)
    with pytest.raises(ConfigError, match="lacks 'observation'"):
        loaded(np.zeros(3, np.float32))


def test_data_without_an_end_is_refused():
    dataset = paid(frames=2)
    with pytest.raises(ConfigError, match="none of the 2 transitions"):
        trained(dataset=dataset)


@pytest.mark.parametrize("frames", [6, 9])
def test_one_and_two_episodes_shorter_than_the_context(frames):
    trained(dataset=paid(frames=frames), context_length=30)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (partial(Recall, True), "its networks take one vector"),
        ("CartPole-v1", r"observations of shape \[2\].*CartPole-v1 of \[4\]"),
    ],
)
def test_observations_of_another_kind_are_refused(env, said):
    with pytest.raises(ConfigError, match=said):
        DT(env=env, dataset=paid(), **SMALL).trainer()


def test_a_world_of_tensors_is_played_by_gymnasium_or_refused():
    data = make_dataset(observations=4)
    data.transitions["action"] = torch.randint(2, (300,))
    trainer = DT(env="torch/CartPole-v1", dataset=data, **SMALL).trainer()
    trainer.train()
    assert "eval/return" in trainer.metrics.reported
    with pytest.raises(ConfigError, match="tensor world has none: pass the id"):
        DT(env=CartPoleWorld, dataset=data, **SMALL).trainer()
