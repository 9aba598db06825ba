from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled

from hooktrainer import VectorCollector
from hooktrainer.collect.probe import spaces_of
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
        AttributeError("no 'act'"): r"no 'act'. Do the versions .* pip install 'hooktrainer\[atari",
    }
    for error, line in errors.items():

        def make_env(error=error):
            raise error

        with pytest.raises(MissingPackageError, match=line):
            spaces_of(EnvSpec("ALE/Toy-v5", entry_point=make_env))


def test_spaces_are_found_however_an_environment_is_given():
    vector = gym.make_vec("CartPole-v1", num_envs=2)
    for env in (
        "CartPole-v1",
        gym.spec("CartPole-v1"),
        lambda: gym.make("CartPole-v1"),
        [lambda: gym.make("CartPole-v1")],
        vector,
    ):
        observations, actions, _ = spaces_of(env)
        assert observations.shape == (4,)
        assert actions.n == 2
    vector.close()
    with pytest.raises(ConfigError, match="give an environment id"):
        spaces_of(3)
    with pytest.raises(ConfigError, match="CartPole-v1"):
        spaces_of("CartPol-v1")


@pytest.mark.parametrize("num_envs", [1, 4])  # scalar environments, and the vectorised one
def test_an_argument_that_the_environment_does_not_take_is_named(num_envs):
    wrong = {"sutton_bato_reward": True}
    for build in (
        lambda: VectorCollector(
            "CartPole-v1", num_envs=num_envs, frames_per_batch=4, env_kwargs=wrong
        ),
        lambda: spaces_of("CartPole-v1", wrong),
    ):
        with pytest.raises(ConfigError, match="CartPole-v1 has no argument 'sutton_bato") as error:
            build()
        assert "Did you mean sutton_barto_reward? It takes: sutton_barto_reward" in str(error.value)


def test_an_environment_that_leaves_when_it_is_made_ends_nothing_else():
    def make_env():
        raise SystemExit(0)

    with pytest.raises(ConfigError, match=r"called sys.exit\(0\) when made"):
        VectorCollector(make_env, num_envs=2, frames_per_batch=4)


def test_what_an_environment_of_a_package_cannot_import_is_said():
    gym.register("NoJax-v0", "no_such_module_here:Env")
    try:
        with pytest.raises(MissingPackageError, match="NoJax-v0 cannot be made: No module named"):
            spaces_of("NoJax-v0")
    finally:
        gym.registry.pop("NoJax-v0")


def test_what_a_factory_of_the_user_cannot_import_keeps_its_traceback():
    def make_env():
        import no_such_module_here  # noqa: F401

    with pytest.raises(ModuleNotFoundError) as error:
        spaces_of(make_env)
    assert not isinstance(error.value, ConfigError)
