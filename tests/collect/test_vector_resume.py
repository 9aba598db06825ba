"""A resumed collector goes on with the data it would have given, bit for bit."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import OrnsteinUhlenbeckProcessModule
from toy_envs import Careless, Counter, Masked, Nested, Opaque, recurrent

from hooktrainer import StateMismatchError, VectorCollector


def normalized() -> gym.Env[Any, Any]:
    env = gym.make("Pendulum-v1", max_episode_steps=30)
    stacked = gym.wrappers.FrameStackObservation(NormalizeObservation(env), 3)
    return RecordEpisodeStatistics(NormalizeReward(stacked))


class Telling(Careless):
    """Cannot be played again, and says the state of its episodes."""

    def episode_state(self) -> Any:
        said: dict[str, Any] = vars(self).setdefault("said", {})  # the same one each time
        said["at"] = [self.total, self.start, self.count]
        said["generator"] = self.generator.bit_generator.state
        return said

    def set_episode_state(self, state: Any) -> None:
        self.total, self.start, self.count = state["at"]
        self.generator.bit_generator.state = state["generator"]


def told() -> gym.Env[Any, Any]:
    limited = gym.wrappers.TimeLimit(Telling(), 17)
    return gym.wrappers.FrameStackObservation(NormalizeObservation(limited), 3)


SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "cartpole": ({"env": "CartPole-v1", "num_envs": 5}, "replay"),
    "cartpole, scalar": (
        {"env": "CartPole-v1", "num_envs": 5, "vectorization_mode": "sync"},
        "replay",
    ),
    "cartpole, frame skip": ({"env": "CartPole-v1", "num_envs": 5, "frame_skip": 2}, "replay"),
    "acrobot": ({"env": "Acrobot-v1", "num_envs": 5}, "replay"),
    "wrapped": ({"env": [normalized] * 5}, "replay"),
    "nested": ({"env": [Nested] * 5}, "replay"),
    "masked": ({"env": [Masked] * 5}, "replay"),
    "opaque, frame skip": ({"env": [Opaque] * 5, "frame_skip": 3}, "replay"),
    "opaque, one-hot": ({"env": [Opaque] * 5, "categorical_actions": False}, "replay"),
    "taxi": ({"env": "Taxi-v4", "num_envs": 5}, "replay"),
    "says its state": ({"env": [told] * 5}, "state"),
}


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_environment_is_resumed_exactly(name: str) -> None:
    arguments, method = SOURCES[name]

    def build(seed: int) -> VectorCollector:
        return VectorCollector(frames_per_batch=5 * 13, seed=seed, traj_ids=True, **arguments)

    collector = build(seed=9)
    assert {restore.method for restore in collector.envs.restores} == {method}
    for _ in range(3):
        collector.collect()
        resumed = build(seed=0)  # the seed is part of the state
        resumed.load_state_dict(collector.state_dict())
        expected = [collector.collect() for _ in range(2)]
        assert resumed.frames == collector.frames - 2 * 65
        assert all((resumed.collect() == batch).all() for batch in expected)


@pytest.mark.parametrize("make", [Opaque, told])
def test_a_state_is_not_changed_by_what_follows(make: Any) -> None:
    collector = VectorCollector([make] * 2, frames_per_batch=20)
    collector.collect()
    state = collector.state_dict()
    expected = collector.collect()
    collector.state_dict()
    for _ in range(3):
        resumed = VectorCollector([make] * 2, frames_per_batch=20)
        resumed.load_state_dict(state)
        assert (resumed.collect() == expected).all()


def test_a_batch_that_fails_abandons_the_running_episodes() -> None:
    def build() -> VectorCollector:
        return VectorCollector([Opaque] * 2, policy, frames_per_batch=8, traj_ids=True)

    def policy(observation: torch.Tensor) -> torch.Tensor:
        if fails and observation[0, 1] == 2:
            raise KeyboardInterrupt
        return torch.zeros(2).long()

    fails = True
    collector = build()
    with pytest.raises(KeyboardInterrupt):
        collector.collect()
    assert collector.frames == 0
    fails = False
    resumed = build()
    resumed.load_state_dict(collector.state_dict())
    batch = collector.collect()
    assert batch["collector", "traj_ids"][:, 0].tolist() == [2, 3]
    assert batch["next", "step_count"][0, :, 0].tolist() == [1, 2, 3, 4]
    assert (resumed.collect() == batch).all()


def test_random_frames_go_on() -> None:
    policy = TensorDictModule(nn.Linear(3, 1), ["observation"], ["action"])

    def build() -> VectorCollector:
        return VectorCollector(
            "Pendulum-v1", policy, num_envs=2, frames_per_batch=10, init_random_frames=25
        )

    collector = build()
    collector.collect()
    resumed = build()
    resumed.load_state_dict(collector.state_dict())
    random_state = torch.get_rng_state()
    for _ in range(3):
        assert (resumed.collect() == collector.collect()).all()
    assert torch.get_rng_state().equal(random_state)


def test_random_frames_draw_none_of_the_policys_random_numbers() -> None:
    def policy(observation: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.random.uniform(-1, 1, (2, 1)).astype(np.float32))

    options = {"num_envs": 2, "frames_per_batch": 10, "init_random_frames": 20}
    np.random.seed(0)
    VectorCollector("Pendulum-v1", policy, **options).collect()
    assert np.random.uniform() == np.random.RandomState(0).uniform()


def test_exploration_noise_goes_on() -> None:
    def build() -> VectorCollector:
        noise = OrnsteinUhlenbeckProcessModule(spec=Bounded(-9, 9, (1,)), eps_end=1.0)
        mean = TensorDictModule(lambda o: torch.zeros(len(o), 1), ["observation"], ["action"])
        return VectorCollector(
            "Pendulum-v1", TensorDictSequential(mean, noise), num_envs=2, frames_per_batch=10
        )

    collector = build()
    collector.collect()
    state, random_state = collector.state_dict(), torch.get_rng_state()
    expected = collector.collect()
    resumed = build()
    resumed.load_state_dict(state)
    torch.set_rng_state(random_state)
    assert (resumed.collect() == expected).all()


def test_what_cannot_be_restored_is_said_at_the_start_and_again() -> None:
    def unseeded() -> gym.Env[Any, Any]:
        env = Careless()
        env.spec = EnvSpec("Careless-v0", nondeterministic=True)
        return env

    def build() -> VectorCollector:
        return VectorCollector([Counter, unseeded], frames_per_batch=6)

    collector = build()
    assert re.search(r"environments 1 \(.*Careless.*nondeterministic", collector.unsaved or "")
    assert [restore.method for restore in collector.envs.restores] == ["replay", "none"]
    collector.collect()
    state = collector.state_dict()
    expected = collector.collect()
    resumed = build()
    with pytest.warns(UserWarning, match=r"1 begin a new episode"):
        resumed.load_state_dict(state)
    batch = resumed.collect()
    assert (batch[0] == expected[0]).all()
    assert batch["observation"][1, :, 1].tolist() == [0, 1, 2]
    assert batch["next", "step_count"][1, :, 0].tolist() == [1, 2, 3]


def test_a_state_of_other_wrappers_is_refused() -> None:
    collector = VectorCollector([told], frames_per_batch=6)
    collector.collect()
    with pytest.raises(StateMismatchError, match=r"has 3 wrappers, .* has 4"):
        VectorCollector(
            [lambda: gym.wrappers.RecordEpisodeStatistics(told())], frames_per_batch=6
        ).load_state_dict(collector.state_dict())


@pytest.mark.parametrize("env", [[Opaque], VectorStatistics(SyncVectorEnv([Opaque]))])
def test_a_replay_that_goes_astray_is_an_error(env: Any) -> None:
    collector = VectorCollector(env, frames_per_batch=6)
    collector.collect()
    state = collector.state_dict()
    state["rollout"]["running"]["actions"]["0"][0][2] ^= 1
    with pytest.raises(StateMismatchError, match=r"does not lead to the saved observation"):
        VectorCollector(env, frames_per_batch=6).load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": [Counter] * 3}, "num_envs is 3 here and 2 in the state"),
        ({"env": [Nested] * 2}, r"observations have the shapes \[\[2\]\]"),
        ({"env": [Counter] * 2}, r"no actions of the environments 0-1: restore_episodes=False"),
        ({"env": [Counter] * 2, "policy": recurrent()}, "policy carries {} .*'recurrent_state'"),
    ],
)
def test_a_state_of_others_is_refused_and_changes_nothing(
    arguments: dict[str, Any], message: str
) -> None:
    collector = VectorCollector(
        [Counter] * 2, frames_per_batch=6, seed=8, restore_episodes="policy" in arguments
    )
    collector.collect()
    other = VectorCollector(frames_per_batch=6, **arguments)
    twin = VectorCollector(frames_per_batch=6, **arguments)
    other.collect()
    twin.collect()
    with pytest.raises(StateMismatchError, match=message):
        other.load_state_dict(collector.state_dict())
    assert (other.collect() == twin.collect()).all()


def test_the_state_of_another_kind_of_collector_is_a_difference() -> None:
    collector = VectorCollector([Counter] * 2, frames_per_batch=6)
    said = ["the state is that of a collector of another kind"]
    for state in ({"frames": 6}, {"workers": [], "pending": []}):
        assert collector.mismatches(state) == said
        assert collector.fitting(state) is None
        with pytest.raises(StateMismatchError, match=said[0]):
            collector.load_state_dict(state)
    assert collector.mismatches(collector.state_dict()) == []
