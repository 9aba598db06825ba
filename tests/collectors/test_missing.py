from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.error import DependencyNotInstalled

from hooktrainer import VectorCollector
from hooktrainer.collectors.probe import spaces_of
from hooktrainer.errors import ConfigError

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


def test_spaces_are_found_however_an_environment_is_given():
    vector = gym.make_vec("CartPole-v1", num_envs=2)
    for env in (
        "CartPole-v1",
        gym.spec("CartPole-v1"),
        lambda: gym.make("CartPole-v1"),
        [lambda: gym.make("CartPole-v1")],
        vector,
    ):
        observations, actions = spaces_of(env)
        assert observations.shape == (4,)
        assert actions.n == 2
    vector.close()
    with pytest.raises(ConfigError, match="give an environment id"):
        spaces_of(3)
    with pytest.raises(ConfigError, match="CartPole-v1"):
        spaces_of("CartPol-v1")
