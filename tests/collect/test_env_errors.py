from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled

from hooktrainer import VectorCollector
from hooktrainer.algorithms import PPO
from hooktrainer.collect.make_group import spaces_of
from hooktrainer.collect.worlds.classic_control import CartPoleWorld as TensorCartPole
from hooktrainer.errors import ConfigError, MissingPackageError

LINES = {
    'MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`': "'hooktrainer[mujoco]'",
    'swig, followed by `pip install "gymnasium[box2d]"`': "'hooktrainer[box2d]'",
    'run `pip install "gymnasium[toy-text]"`': '"gymnasium[toy-text]"',
    "ask the author of the environment": "ask the author",
}


@pytest.mark.parametrize(("message", "line"), LINES.items())
def test_what_is_missing_is_named_with_the_line_that_installs_it(message, line):
    def make_env():
        raise DependencyNotInstalled(message)

    for build in (
        lambda: VectorCollector(make_env, num_envs=2, frames_per_batch=4),
        lambda: spaces_of(make_env),
    ):
        with pytest.raises(ModuleNotFoundError) as error:
            build()
        assert line in str(error.value)
        assert isinstance(error.value.__cause__, DependencyNotInstalled)


def test_a_package_of_a_known_family_is_named_whatever_it_lacks():
    errors = {
        DependencyNotInstalled("run `pip install x`"): r"pip install 'hooktrainer\[atari\]'$",
        ImportError("no cv2"): r"made: no cv2: pip install 'hooktrainer\[atari\]'$",
    }
    for error, line in errors.items():

        def make_env(error=error):
            raise error

        with pytest.raises(MissingPackageError, match=line):
            spaces_of(EnvSpec("ALE/Toy-v5", entry_point=make_env))


@pytest.mark.parametrize("num_envs", [1, 4])  # scalar environments, and the vectorised one
def test_an_argument_that_the_environment_does_not_take_is_named(num_envs):
    wrong = {"sutton_bato_reward": True}
    for build in (
        lambda: VectorCollector(
            "CartPole-v1", num_envs=num_envs, frames_per_batch=4, env_kwargs=wrong
        ),
        lambda: spaces_of("CartPole-v1", wrong),
    ):
        with pytest.raises(ConfigError, match="CartPole-v1 has no argument 'sutton_bato"):
            build()


def test_an_environment_that_leaves_when_it_is_made_ends_nothing_else():
    def make_env():
        raise SystemExit(0)

    with pytest.raises(ConfigError, match=r"called sys.exit\(0\) when made"):
        VectorCollector(make_env, num_envs=2, frames_per_batch=4)


class Turns:
    """As an AEC environment of PettingZoo."""

    possible_agents = ("a", "b")

    def agent_iter(self):
        raise NotImplementedError


class Robots:
    """As a simulator of tensors."""

    num_envs, num_actions, device = 2, 1, "cuda"

    def get_observations(self):
        raise NotImplementedError

    step = get_observations


@pytest.mark.parametrize(
    ("env", "instead"),
    [
        (Turns, "act in turns.* parallel_env"),
        (type("Parallel", (), {"possible_agents": ()}), "AgentsCollector, mappo"),
        (
            lambda: gym.make_vec("CartPole-v1", 2),
            "is several: build one",
        ),
        (lambda: Robots(), "WorldCollector"),
        (type("Simulator", (), {"num_envs": 8}), "WorldCollector"),
        (object, "give an environment id, or a function that builds one"),
    ],
)
def test_what_is_no_single_environment_is_answered_with_what_takes_it(env, instead):
    for build in (spaces_of, lambda env: VectorCollector(env, num_envs=2, frames_per_batch=4)):
        with pytest.raises(ConfigError, match=instead):
            build(env)


@pytest.mark.parametrize("env", [Robots(), TensorCartPole], ids=["built", "to be built"])
def test_a_simulator_of_tensors_is_answered_with_its_collector(env):
    with pytest.raises(ConfigError, match="WorldCollector"):
        VectorCollector(env, num_envs=2, frames_per_batch=4)


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


def test_without_probing_no_step_is_made_before_the_first_batch(monkeypatch):
    given = {"num_envs": 1, "frames_per_batch": 4, "reset_options": {"height": 2}}
    for probe in (True, False):
        monkeypatch.setattr(Robot, "steps", 0)
        monkeypatch.setattr(Robot, "options", [])
        collector = VectorCollector(Robot, probe=probe, info_keys=["x"], **given)
        assert (Robot.steps > 0) == probe
        monkeypatch.setattr(Robot, "options", [])
        collector.collect()
        assert Robot.options == [{"height": 2}] * len(Robot.options) != []
        collector.shutdown()
    batches = [
        VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=8, probe=probe).collect()
        for probe in (True, False)
    ]
    assert (batches[0]["observation"] == batches[1]["observation"]).all()
