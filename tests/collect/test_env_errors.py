from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled

from hooktrainer import VectorCollector
from hooktrainer.algorithms import PPO
from hooktrainer.collect.make_envs import spaces_of
from hooktrainer.errors import ConfigError, MissingPackageError


@pytest.mark.parametrize("extra", ["mujoco", "box2d", "toy-text"])
def test_what_is_missing_is_named_with_the_line_that_installs_it(extra):
    def make_env():
        raise DependencyNotInstalled(f'swig, followed by `pip install "gymnasium[{extra}]"`')

    line = "gymnasium[toy-text]" if extra == "toy-text" else f"pip install 'hooktrainer[{extra}]'"
    for build in (partial(VectorCollector, num_envs=2, frames_per_batch=4), spaces_of):
        with pytest.raises(MissingPackageError) as error:
            build(make_env)
        assert line in str(error.value)


@pytest.mark.parametrize("error", [DependencyNotInstalled("no ale"), ImportError("no cv2")])
def test_a_package_of_a_known_family_is_named_whatever_it_lacks(error):
    def make_env():
        raise error

    with pytest.raises(MissingPackageError, match=r"made: no .*: pip install 'hooktrainer\[atari"):
        spaces_of(EnvSpec("ALE/Toy-v5", entry_point=make_env))


@pytest.mark.parametrize("package", ["minatar", "minigrid"])
def test_the_package_of_a_tensor_worlds_original_is_named(package):
    def make_env():
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)

    with pytest.raises(MissingPackageError, match=rf"pip install 'hooktrainer\[{package}\]'"):
        spaces_of(EnvSpec("torch/Toy-v0", entry_point=make_env))


@pytest.mark.parametrize("num_envs", [1, 4])  # scalar environments, and the vectorised one
def test_an_argument_that_the_environment_does_not_take_is_named(num_envs):
    wrong = {"sutton_bato_reward": True}
    for build in (
        lambda: VectorCollector(
            "CartPole-v1", num_envs=num_envs, frames_per_batch=4, env_kwargs=wrong
        ),
        lambda: spaces_of("CartPole-v1", wrong),
    ):
        with pytest.raises(ConfigError, match="unexpected keyword argument 'sutton_bato"):
            build()


class Robots:
    """As a simulator of tensors."""

    num_envs, num_actions, device = 2, 1, "cuda"

    def get_observations(self):
        raise NotImplementedError

    step = get_observations


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            lambda: gym.make_vec("CartPole-v1", 2),
            "not a gymnasium.Env. VectorCollector takes.*mappo",
        ),
        (object, "not a gymnasium.Env. VectorCollector takes.*mappo"),
        (Robots, "a Robots, a batch of environments: pass it itself, or give .* num_envs"),
    ],
)
def test_what_is_no_single_environment_is_answered_with_what_takes_it(env, said):
    for build in (spaces_of, lambda env: VectorCollector(env, num_envs=2, frames_per_batch=4)):
        with pytest.raises(ConfigError, match=said):
            build(env)


@pytest.mark.parametrize(
    ("kwargs", "why"),
    [
        ({}, "missing a required argument: 'length'"),
        ({"length": 1, "wide": 2}, "an unexpected keyword argument 'wide'"),
    ],
)
def test_arguments_that_a_function_does_not_take_or_lacks_are_named(kwargs, why):
    def corridor(length):
        raise AssertionError

    for build in (
        spaces_of,
        lambda env, kwargs: VectorCollector(env, num_envs=2, frames_per_batch=4, env_kwargs=kwargs),
    ):
        with pytest.raises(ConfigError, match=f"corridor.* cannot be called with env_kw.*{why}"):
            build(corridor, kwargs)


def test_an_algorithm_says_how_a_vector_environment_is_given(tmp_path):
    pool = gym.make_vec("CartPole-v1", num_envs=4)
    given = {"total_frames": 64, "steps_per_batch": 16, "num_envs": 4, "eval_episodes": 0}
    with pytest.raises(ConfigError, match=r"its id.*collector=lambda env, num_envs"):
        PPO(env=pool, **given).trainer()

    def collector(env, num_envs, **options):
        return VectorCollector(pool, **options)

    PPO(env="CartPole-v1", collector=collector, **given).train()  # as it said


class Robot(gym.Env):
    """Counts its steps, and keeps what it was reset with."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    steps = 0
    options: list = []  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        Robot.options.append(options)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Robot.steps += 1
        return np.zeros(1, np.float32), 0.0, False, Robot.steps % 3 == 0, {"x": 1.0}

    def __deepcopy__(self, memo):
        return self  # one machine, however many objects


def test_without_restored_episodes_no_step_is_made_before_the_first_batch(monkeypatch):
    given = {"num_envs": 1, "frames_per_batch": 4, "reset_options": {"height": 2}}
    for plays in (True, False):
        monkeypatch.setattr(Robot, "steps", 0)
        monkeypatch.setattr(Robot, "options", [])
        collector = VectorCollector(Robot, restore_episodes=plays, info_keys=["x"], **given)
        assert (Robot.steps > 0) == plays
        monkeypatch.setattr(Robot, "options", [])
        collector.collect()
        assert Robot.options == [{"height": 2}] * len(Robot.options) != []
        collector.shutdown()
