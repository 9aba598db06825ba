"""``VecEnv`` of rsl_rl, of every version: Isaac Lab's and mjlab's wrappers, legged_gym's."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from no_waiting import NoWaiting
from tensordict import TensorDict

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.algorithms import PPO
from hooktrainer.collect.worlds import RslRlWorld, adapt_world
from hooktrainer.testing import check_collector


class VecEnv:
    """To the letter of rsl_rl 5: climbs by its action, terminates at 3, times out after 5 steps."""

    num_envs = 2
    num_actions = 1
    max_episode_length = 5
    device = "cpu"
    cfg = None
    actor = "policy"

    def __init__(self):
        self.at = torch.zeros(2, 1)
        self.episode_length_buf = torch.zeros(2, dtype=torch.long)
        self.seeds = []

    def seed(self, seed=-1):
        self.seeds.append(seed)
        return seed

    def observe(self):
        return {
            self.actor: self.at.clone(),
            "critic": torch.cat([self.at, -self.at], -1),
            "scan": torch.zeros(2, 3),
        }

    def get_observations(self):
        return TensorDict(self.observe(), batch_size=[2])

    def advance(self, actions):
        self.at = self.at + actions
        self.episode_length_buf = self.episode_length_buf + 1
        reward = self.at.squeeze(-1).clone()
        time_outs = self.episode_length_buf >= self.max_episode_length
        done = (self.at.squeeze(-1) >= 3) | time_outs
        self.at = torch.where(done.unsqueeze(-1), 0.0, self.at)
        self.episode_length_buf = torch.where(done, 0, self.episode_length_buf)
        extras = {"time_outs": time_outs, "log": {"/Metrics/height": reward, "level": 1.5}}
        return reward, done.long(), extras

    def step(self, actions):
        reward, dones, extras = self.advance(actions)
        return self.get_observations(), reward, dones, extras


class Mjlab(VecEnv):
    """mjlab calls the policy's group ``actor``, clips actions, and can be reset."""

    actor = "actor"
    clip_actions = 1.0

    def reset(self):
        VecEnv.__init__(self)
        return self.get_observations(), {}


class Version2(VecEnv):
    """To the letter of rsl_rl 2: tensors, with groups in the extras."""

    def get_observations(self):
        return self.at.clone(), {"observations": {"critic": self.observe()["critic"]}}

    def step(self, actions):
        reward, dones, extras = self.advance(actions)
        observed, more = self.get_observations()
        return observed, reward, dones, extras | more


class Version1(VecEnv):
    """To the letter of rsl_rl 1 and legged_gym: what values see comes apart, logs as episodes."""

    def get_observations(self):
        return self.at.clone()

    def get_privileged_observations(self):
        return self.observe()["critic"]

    def step(self, actions):
        reward, dones, extras = self.advance(actions)
        extras["episode"] = extras.pop("log")
        return self.at.clone(), self.get_privileged_observations(), reward, dones, extras


ACTIONS = torch.tensor([[1.0], [0.5]])


@pytest.mark.parametrize("make", [VecEnv, Mjlab, Version2, Version1])
def test_every_version_is_taken(make):
    world = adapt_world(make())
    assert isinstance(world, RslRlWorld)
    assert list(world.observation_space.spaces) == ["critic", "policy"]
    world.seed(0)
    assert world.reset()["critic"].shape == (2, 2)
    with NoWaiting():
        outcomes = [world.step(ACTIONS) for _ in range(5)]
    assert [out.terminated.tolist() for out in outcomes] == [[t == 2, False] for t in range(5)]
    assert [out.truncated.tolist() for out in outcomes] == [[False, t == 4] for t in range(5)]
    assert [out.observation["policy"].flatten().tolist() for out in outcomes] == [
        [1, 0.5],
        [2, 1],
        [0, 1.5],
        [1, 2],
        [2, 0],
    ]
    assert outcomes[2].reward.tolist() == [3, 1.5]
    assert all(out.final is None for out in outcomes)
    log = outcomes[2].log
    assert log["Metrics/height"].tolist() == [3, 1.5]
    assert float(log["level"]) == 1.5


def test_bounds_of_actions_are_those_that_the_wrapper_clips_to():
    assert adapt_world(Mjlab()).action_space == spaces.Box(-1.0, 1.0, (1,))
    assert not adapt_world(VecEnv()).action_space.is_bounded()


def test_an_end_without_time_outs_is_a_terminal_state():
    class Finite(VecEnv):
        def step(self, actions):
            *rest, extras = super().step(actions)
            del extras["time_outs"]
            return *rest, extras

    batch = VectorCollector(Finite(), frames_per_batch=20).collect()["next"]
    assert batch["done"].any()
    assert torch.equal(batch["done"], batch["terminated"])


def test_groups_are_those_of_the_runner_s_configuration():
    sets = {"actor": ["policy", "scan"], "critic": ["critic"]}
    world = RslRlWorld(VecEnv(), obs_groups=sets)
    assert list(world.observation_space["policy"].spaces) == ["policy", "scan"]
    assert world.reset()["policy", "scan"].shape == (2, 3)
    alone = RslRlWorld(VecEnv(), obs_groups={"actor": ["policy"]})
    assert list(alone.reset()) == ["observation"]
    for sets in ({"actor": ["lidar"]}, {"critic": ["critic"]}):
        with pytest.raises(ConfigError, match="VecEnv has the groups policy, critic, scan"):
            RslRlWorld(VecEnv(), obs_groups=sets)
    env = VecEnv()
    env.actor = "proprioception"
    with pytest.raises(ConfigError, match="the groups proprioception, critic, scan"):
        adapt_world(env)


def test_first_episodes_begin_at_random_lengths_if_wanted():
    lengths = []
    for seed in range(20):
        world = RslRlWorld(Mjlab(), random_episode_lengths=True)
        world.seed(seed)
        world.reset()
        lengths += world._env.episode_length_buf.tolist()
        world.reset()
        assert world._env.episode_length_buf.tolist() == [0, 0]  # the first alone
    assert set(lengths) == {0, 1, 2, 3, 4}


def test_a_resume_starts_new_episodes_and_warns():
    env = Mjlab()
    env.seed = (seeds := []).append
    collector = VectorCollector(env, frames_per_batch=4, seed=3)
    assert "VecEnv saves nothing, its random numbers and curricula" in collector.unsaved
    collector.collect()
    collector.load_state_dict(collector.state_dict())
    assert collector.resumes == "partly"
    assert seeds[0] == 3
    assert seeds[-1] not in (3, 0)


def test_attributes_are_set_below_the_wrappers():
    env, wrapper = Mjlab(), Mjlab()
    wrapper.unwrapped = env
    for given in (env, wrapper):
        collector = VectorCollector(given, frames_per_batch=8)
        collector.set_attribute("max_episode_length", 2)
        assert env.max_episode_length == 2
        collector.load_state_dict(collector.state_dict())
        env.max_episode_length = 5
        with pytest.raises(ConfigError, match="Mjlab has no attribute 'gravity' to be set"):
            collector.set_attribute("gravity", 2)


@pytest.mark.parametrize("make", [Mjlab, Version2])
def test_the_contract_of_collectors_is_kept(make):
    check_collector(lambda: VectorCollector(make(), frames_per_batch=12, total_frames=60))


def test_algorithms_train_on_it_with_a_critic_of_its_own():
    run = PPO(
        env=Mjlab(),
        num_envs=2,
        steps_per_batch=8,
        total_frames=64,
        eval_episodes=0,
        progress_bar=False,
    )
    trainer = run.trainer()
    assert trainer.loss_module.critic_network.in_keys == ["critic"]
    assert trainer.loss_module.actor_network.in_keys == ["policy"]
    trainer.train()
    assert trainer.metrics.reported["Metrics/height"] == trainer.metrics.reported["Metrics/height"]
