"""An environment of a package that is not there: which package, and what to type."""

from __future__ import annotations

import sys

import gymnasium as gym
import pytest

from hooktrainer import VectorCollector, algorithms
from hooktrainer.base import env_packages
from hooktrainer.base.env_packages import package_of
from hooktrainer.collect.make_envs import find_spec
from hooktrainer.errors import ConfigError, MissingPackageError

IDS = {
    "ALE/Pong-v5": "hooktrainer[atari]",
    "BreakoutNoFrameskip-v4": "hooktrainer[atari]",
    "Pong-v4": "hooktrainer[atari]",
    "MiniGrid-Empty-5x5-v0": "hooktrainer[minigrid]",
    "BabyAI-GoToObj-v0": "hooktrainer[minigrid]",
    "MiniWorld-OneRoom-v0": "miniworld",
    "FetchReach-v4": "hooktrainer[robotics]",
    "AntMaze_UMaze-v5": "hooktrainer[robotics]",
    "dm_control/cartpole-swingup-v0": "hooktrainer[dm-control]",
    "bsuite/catch-v0": "shimmy[bsuite]",
    "popgym-RepeatPreviousEasy-v0": "hooktrainer[popgym]",
    "MinAtar/Breakout-v1": "hooktrainer[minatar]",
    "highway-fast-v0": "highway-env",
    "PandaReach-v3": "panda-gym",
    "FlappyBird-v0": "flappy-bird-gymnasium",
    "Meta-World/MT1": "metaworld",
    "VizdoomBasic-v0": "vizdoom",
    "D4RL/pen/human-v2": "hooktrainer[minari]",
}


@pytest.fixture
def bare(monkeypatch):
    """As in a process that has imported no package, since none is installed."""
    for env_id in [env_id for env_id in gym.registry if package_of(env_id)]:
        monkeypatch.delitem(gym.registry, env_id)
    monkeypatch.setattr(env_packages.EnvPackage, "is_installed", False)


@pytest.mark.parametrize(("env_id", "install"), IDS.items())
@pytest.mark.usefixtures("bare")
def test_the_package_of_an_environment_is_named(env_id, install):
    with pytest.raises(MissingPackageError) as caught:
        find_spec(env_id)
    message = str(caught.value)
    assert f"There is no environment {env_id!r} here. It comes with {install}: " in message
    assert "\n" not in message


@pytest.fixture
def panda(tmp_path, monkeypatch):
    """A package that registers one environment when it is imported."""
    (tmp_path / "panda_gym.py").write_text(
        "import gymnasium as gym, warnings\n"
        "warnings.warn('a package of others may warn')\n"
        "gym.register('PandaReach-v3', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gym.registry.pop("PandaReach-v3", None)
    sys.modules.pop("panda_gym", None)


@pytest.mark.usefixtures("panda")
def test_what_is_installed_need_not_be_imported():
    assert find_spec("PandaReach-v3").id == "PandaReach-v3"


@pytest.mark.usefixtures("panda")
def test_an_id_that_the_package_does_not_have_names_the_nearest():
    with pytest.raises(MissingPackageError, match=r"registers none of this name\. Did you mean"):
        find_spec("PandaReach-v4")


def test_a_misspelt_tensor_environment_names_no_package_to_install():
    with pytest.raises(MissingPackageError) as caught:
        find_spec("torch/MinAtar-Brekout")
    assert "hooktrainer has no tensor environment of this name. Did you" in str(caught.value)
    assert "hooktrainer.collect" not in str(caught.value)


def test_a_module_before_the_id_registers_it(tmp_path, monkeypatch):
    (tmp_path / "my_worlds.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('PandaReach-v99', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert find_spec("my_worlds:PandaReach-v99").id == "PandaReach-v99"
    finally:
        gym.registry.pop("PandaReach-v99", None)
        sys.modules.pop("my_worlds", None)


def test_a_module_of_the_current_directory_registers_a_neighbours_class(tmp_path, monkeypatch):
    register = "import gymnasium as gym\ngym.register('Mine-v99', 'mine_envs:Mine')\n"
    (tmp_path / "mine_ids.py").write_text(register)
    cart = "from gymnasium.envs.classic_control import CartPoleEnv\nclass Mine(CartPoleEnv): ...\n"
    (tmp_path / "mine_envs.py").write_text(cart)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as of a command
    monkeypatch.chdir(tmp_path)
    try:
        collector = VectorCollector("mine_ids:Mine-v99", num_envs=1, frames_per_batch=4)
        assert collector.collect().shape == (1, 4)
        collector.shutdown()
    finally:
        gym.registry.pop("Mine-v99", None)
        for name in ("mine_ids", "mine_envs"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("vizdoom.gymnasium_wrapper:VizdoomBasic-v0", "no module 'vizdoom.*pip install 'vizdoom'"),
        ("no_such:World-v0", "no module 'no_such' to register the environment: is its name right"),
    ],
)
def test_a_module_that_is_not_there_is_named(env_id, message):
    for make in (
        lambda: VectorCollector(env_id, num_envs=1, frames_per_batch=4),
        lambda: algorithms.PPO(env=env_id, total_frames=10).trainer(),
    ):
        with pytest.raises(MissingPackageError, match=message):
            make()


def test_what_gymnasium_itself_has_is_no_package():
    own = [s.id for s in gym.registry.values() if "gymnasium.envs" in str(s.entry_point)]
    worlds = "torch/"  # ours, under which stand Gymnasium's own
    assert [i for i in own if package_of(i) and not i.startswith(worlds)] == []
    with pytest.raises(ConfigError, match="Did you mean CartPole-v0 or CartPole-v1"):
        find_spec("cartpole")
