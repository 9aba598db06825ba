"""Vector environments of Gymnasium's kind that return tensors: ManiSkill's and Isaac Lab's."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from no_waiting import NoWaiting

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect.worlds import GymWorld, adapt_world
from hooktrainer.testing import check_collector


class Climb:
    """Physics of both: each environment climbs by its action, terminates at 3, ends after 5."""

    num_envs = 2
    device = torch.device("cpu")
    single_observation_space = spaces.Dict(policy=spaces.Box(0.0, 9.0, (1,)))
    single_action_space = spaces.Box(0.0, 1.0, (1,))
    spec = None

    def begin(self):
        self.at, self.steps = torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)

    def advance(self, action):
        self.at, self.steps = self.at + action, self.steps + 1
        return self.at.squeeze(-1) >= 3, self.steps >= 5

    def again(self, done):
        self.at = torch.where(done.unsqueeze(-1), 0.0, self.at)
        self.steps = torch.where(done, 0, self.steps)

    def observe(self):
        return {"policy": self.at.clone()}


class ManiSkill(Climb, gym.vector.VectorEnv):
    """To the letter of ``ManiSkillVectorEnv`` with ``record_metrics=True``."""

    auto_reset = True
    seeds: list

    def __init__(self):
        self.seeds = []
        self.returns = torch.zeros(2)

    def reset(self, *, seed=None, options=None):
        if options is None:
            self.seeds.append(seed)
            self.begin()
            self.returns = torch.zeros(2)
        else:
            done = torch.zeros(2, dtype=torch.bool)
            done[options["env_idx"]] = True
            self.again(done)
            self.returns[done] = 0
        return self.observe(), {"reconfigure": False}

    def step(self, actions):
        terminated, truncated = self.advance(actions)
        reward = self.at.squeeze(-1).clone()
        self.returns += reward
        observed = self.observe()
        infos = {"success": terminated.clone(), "episode": {"return": self.returns.clone()}}
        if (done := terminated | truncated).any():
            final_info = infos
            observed, infos = self.reset(options={"env_idx": torch.arange(2)[done]})
            infos["final_observation"] = {"policy": self.at_end(done, reward)}
            infos["final_info"] = final_info
            infos["_final_info"] = infos["_final_observation"] = infos["_elapsed_steps"] = done
        return observed, reward, terminated, truncated, infos

    def at_end(self, done, reward):
        return reward.unsqueeze(-1)


class Strict(ManiSkill):
    """To the letter of Gymnasium: ``final_obs`` means something only for those that ended."""

    auto_reset = None

    def __init__(self):
        super().__init__()
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def step(self, actions):
        *rest, infos = super().step(actions)
        if "final_observation" in infos:
            infos["final_obs"] = infos.pop("final_observation")
            infos["_final_obs"] = infos.pop("_final_observation")
        return *rest, infos

    def at_end(self, done, reward):
        return torch.where(done, reward, float("nan")).unsqueeze(-1)


class IsaacLab(Climb, gym.Env):
    """To the letter of Isaac Lab's environments as ``gymnasium.make`` registers them."""

    is_vector_env = True

    def __init__(self):
        self.begin()
        self.extras = {}

    @property
    def episode_length_buf(self):
        return self.steps

    def reset(self, seed=None, options=None):
        self.begin()
        self.extras = {"log": {}}
        return self.observe(), self.extras

    def step(self, action):
        terminated, truncated = self.advance(action)
        reward = self.at.squeeze(-1).clone()
        self.again(terminated | truncated)
        self.extras["log"] = {"Episode_Reward/height": reward.mean(), "Curriculum/level": 2.5}
        return self.observe(), reward, terminated, truncated, self.extras


ACTIONS = torch.tensor([[1.0], [0.5]])  # ends by climbing after 3 steps; by the limit after 5


@pytest.mark.parametrize("make", [ManiSkill, Strict])
def test_true_final_observations_are_taken(make):
    world = adapt_world(make())
    assert isinstance(world, GymWorld)
    world.seed(7)
    assert world.reset()["policy"].tolist() == [[0], [0]]
    seen = [world.step(ACTIONS) for _ in range(5)]
    assert [out.final["policy"].flatten().tolist() for out in seen] == [
        [1, 0.5],
        [2, 1],
        [3, 1.5],
        [1, 2],
        [2, 2.5],
    ]
    assert [out.observation["policy"].flatten().tolist() for out in seen] == [
        [1, 0.5],
        [2, 1],
        [0, 1.5],
        [1, 2],
        [2, 0],
    ]
    assert [out.terminated.tolist() for out in seen] == [[t == 2, False] for t in range(5)]
    assert [out.truncated.tolist() for out in seen] == [[False, t == 4] for t in range(5)]


def test_episode_infos_are_logged_at_episode_ends_only():
    collector = VectorCollector(ManiSkill(), frames_per_batch=10, info_keys=("success",))
    collector.envs.to_world = lambda actions: ACTIONS
    batch = collector.collect()
    log = collector.log_of_world(batch)
    # Returns 1 + 2 + 3 and 0.5 + ... + 2.5 of the two episodes that ended.
    assert float(log["episode/return"]) == (6 + 7.5) / 2
    assert batch["next", "success"][0].flatten().nan_to_num(9).tolist() == [0, 0, 1, 0, 9]
    assert float(log["world/reconfigure"]) == 0


def test_the_seed_of_the_run_is_given_once_and_after_a_resume_another():
    env = ManiSkill()
    collector = VectorCollector(env, frames_per_batch=4, seed=5)
    collector.collect()
    collector.reset()
    collector.collect()
    assert env.seeds == [5, None]
    saved = collector.state_dict()
    for resumed in (1, 2):
        collector.load_state_dict(saved)
        collector.collect()
        saved = collector.state_dict()
        assert len(set(env.seeds)) == 2 + resumed  # episodes that were not played yet


def test_isaac_lab_hides_final_observations():
    world = adapt_world(gym.wrappers.OrderEnforcing(IsaacLab()))
    world.reset()
    with NoWaiting():
        outcomes = [world.step(ACTIONS) for _ in range(3)]
    assert all(out.final is None for out in outcomes)
    assert outcomes[2].terminated.tolist() == [True, False]
    assert outcomes[2].observation["policy"].flatten().tolist() == [0, 1.5]
    assert {key: float(value) for key, value in outcomes[2].log.items()} == {
        "Episode_Reward/height": 2.25,
        "Curriculum/level": 2.5,
    }
    batch = VectorCollector(IsaacLab(), frames_per_batch=10).collect()
    assert torch.equal(batch["collector", "final_hidden"], batch["next", "done"])


def test_attributes_of_the_environment_are_set():
    env = Strict()
    env.level = 0
    VectorCollector(env, frames_per_batch=8).set_attribute("level", 3)
    assert env.level == 3


@pytest.mark.parametrize("make", [ManiSkill, Strict, IsaacLab])
def test_the_contract_of_collectors_is_kept(make):
    check_collector(lambda: VectorCollector(make(), frames_per_batch=8, total_frames=32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_reset": False}, "autoreset_mode=None and auto_reset=False"),
        ({"auto_reset": None}, r"metadata\['autoreset_mode'\] = .*ManiSkillVectorEnv"),
        ({"metadata": {"autoreset_mode": AutoresetMode.NEXT_STEP}}, "autoreset_mode=NEXT_STEP"),
    ],
)
def test_other_ways_to_begin_episodes_are_refused(changes, message):
    env = ManiSkill()
    vars(env).update(changes)
    with pytest.raises(ConfigError, match=message):
        adapt_world(env)


def test_a_numpy_environment_is_refused():
    env = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(ConfigError, match="is no tensor world: give a TensorWorld"):
        adapt_world(env)
    with pytest.raises(ConfigError, match="has no device, so its steps return NumPy arrays"):
        GymWorld(env)
    env.close()
