"""Playing saved policies: repeatable to the last bit, in the environment they were trained in."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec
from policy_envs import Toy
from sealed import change_facts, read_facts

from hooktrainer import ConfigError, load_policy, play_episodes
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import Environment, Episode, episode_seed, evaluate_policy, find_policy


def policy(observations: int = 4, actions: int = 3) -> CategoricalPolicy:
    return CategoricalPolicy(mlp(observations, actions, (8,)))


def test_seeds_of_episodes_are_documented_and_differ():
    words = np.random.SeedSequence([7, 2]).generate_state(1, np.uint32)
    assert episode_seed(7, 2) == int(words[0]) // 2
    assert len({episode_seed(seed, episode) for seed in range(20) for episode in range(20)}) == 400
    with pytest.raises(ConfigError, match="seed=-1: pass an integer of 0 or more"):
        episode_seed(-1, 0)


def test_the_same_seed_gives_the_same_episodes(reload):
    loaded = reload(policy(4, 2), "CartPole-v1")
    first = play_episodes(loaded, seed=7, episodes=5)
    assert play_episodes(loaded, seed=7, episodes=5) == first
    assert play_episodes(loaded, seed=7, episodes=3) == first[:3]
    assert play_episodes(loaded, seed=8, episodes=5) != first
    assert all(episode.return_ == episode.length for episode in first)
    with pytest.raises(ConfigError, match=r"episodes=0: pass a positive integer"):
        play_episodes(loaded, episodes=0)
    with pytest.raises(ConfigError, match=r"seed=1.*: pass an integer below"):
        loaded.seed(2**70)


def test_an_onlooker_sees_every_moment_and_the_end(reload):
    steps = []
    loaded = reload(policy())
    episodes = play_episodes(loaded, 3, 2, steps.append, render_mode="rgb_array")
    for number, episode in enumerate(episodes):
        own = [step for step in steps if step.episode == number]
        assert [step.index for step in own] == list(range(episode.length + 1))
        assert [step.action is None for step in own] == [False] * episode.length + [True]
        assert own[0].return_ == 0.0
        assert own[-1].return_ == episode.return_
    assert steps[0].env.render_mode == "rgb_array"


def test_actions_are_repeated_as_in_training_and_the_callers_environment_stays_open(reload):
    class Steps(Toy):
        taken = closed = 0

        def step(self, action):
            self.taken += 1
            return super().step(action)

        def close(self):
            self.closed += 1

    env = Steps()
    (episode,) = play_episodes(reload(policy(), frame_skip=2), episodes=1, env=env)
    assert episode.length == -(-env.taken // 2)
    assert env.closed == 0


def test_an_evaluation_is_recorded_and_repeated(save):
    path = save(policy(4, 2), "CartPole-v1")
    saved = evaluate_policy(path, seed=5, episodes=4)
    assert find_policy(path).evaluation == saved.evaluation
    assert saved.evaluation.seed == 5
    played = play_episodes(load_policy(path), 5, 4)
    assert saved.evaluation.returns == tuple(episode.return_ for episode in played)
    assert saved.evaluation.lengths == tuple(episode.length for episode in played)
    facts = read_facts(path)["evaluation"]
    assert facts["mean"] == pytest.approx(np.mean(facts["returns"]))
    assert facts["std"] == pytest.approx(np.std(facts["returns"]))


# -- the environment ---------------------------------------------------------------------------


def rescaled(steps: int) -> gym.Env:
    env = gym.wrappers.TimeLimit(gym.make("CartPole-v1"), max_episode_steps=steps)
    return gym.wrappers.ClipReward(env, min_reward=0.0, max_reward=0.5)


def test_an_environment_with_recorded_wrappers_is_made_again(reload):
    loaded = reload(policy(4, 2), partial(rescaled, 3))
    environment = loaded.saved.environment
    assert (environment.id, environment.kwargs) == ("CartPole-v1", {"max_episode_steps": 3})
    assert [name.split(":")[1] for name, _ in environment.wrappers] == ["ClipReward"]
    assert play_episodes(loaded, episodes=2) == [Episode(1.5, 3)] * 2


def short_spec() -> EnvSpec:
    return dataclasses.replace(gym.spec("CartPole-v1"), max_episode_steps=3)


def make_short() -> gym.Env:
    return gym.make("CartPole-v1", max_episode_steps=3)


@pytest.mark.parametrize(
    "env",
    [
        short_spec,
        lambda: [lambda: make_short()],
        lambda: gym.make_vec("CartPole-v1", num_envs=2, sutton_barto_reward=True),
    ],
    ids=["spec", "lambdas", "vector with arguments"],
)
def test_every_form_that_a_collector_takes_is_made_again(env, reload):
    given = env()
    loaded = reload(policy(4, 2), given)
    made = loaded.make_env()
    assert isinstance(made.unwrapped, CartPoleEnv)
    if isinstance(given, gym.vector.VectorEnv):
        given.close()
        assert made.unwrapped._sutton_barto_reward == bool(loaded.saved.env_kwargs)
    else:
        assert play_episodes(loaded, episodes=1, env=made)[0].length == 3
    made.close()


def test_a_function_that_nobody_can_import_is_said(reload):
    env = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2 * reward)
    loaded = reload(policy(4, 2), lambda: env)
    assert loaded.saved.environment.reason
    with pytest.raises(ConfigError, match=r"no description of its environment.* pass it as env="):
        loaded.make_env()
    assert len(play_episodes(loaded, episodes=1, env=gym.make("CartPole-v1"))) == 1


class Scaled(gym.RewardWrapper):
    def __init__(self, env, by=1.0):
        super().__init__(env)
        self.by = by

    def reward(self, reward):
        return self.by * float(reward)


class Negative(gym.RewardWrapper):
    def reward(self, reward):
        return -float(reward)


class OfScript(Negative):
    pass


OfScript.__module__ = "__main__"


def test_a_wrapper_that_records_no_arguments_is_made_again_only_if_it_has_none(reload):
    loaded = reload(policy(4, 2), lambda: Negative(make_short()))
    assert play_episodes(loaded, episodes=1) == [Episode(-3.0, 3)]
    for wrap in (partial(Scaled, by=2.0), OfScript, type("Local", (Negative,), {})):
        loaded = reload(policy(4, 2), lambda wrap=wrap: wrap(make_short()))
        with pytest.raises(ConfigError, match=r"cannot make its wrapper \w+, .* in a function"):
            loaded.make_env()


@pytest.mark.parametrize(
    "trains",
    [
        "hooktrainer.algorithms.PPO(env=Mine, total_frames=8, steps_per_batch=8, num_envs=1, "
        "eval_episodes=0, progress_bar=False)",
        "hooktrainer.testing.tiny_trainer()",
    ],
)
def test_a_script_that_trains_makes_no_environment(trains, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import hooktrainer.algorithms, hooktrainer.testing\n"
        "from gymnasium.envs.classic_control import CartPoleEnv as Mine\n"
        f"{trains}.train()\n"
    )
    made = Environment(factory="Mine", module="__main__", file=str(script))
    with pytest.raises(ConfigError, match=r"script\.py is run to make .* below if __name__ == "):
        made.make(trust=True)


class Constant(torch.nn.Module):
    """The same action for every observation."""

    def __init__(self, *action: float) -> None:
        super().__init__()
        self.action = torch.nn.Parameter(torch.tensor(action))

    def forward(self, observation):
        return self.action + 0 * observation[..., : len(self.action)]


def test_actions_are_clipped_where_there_is_only_one_bound(reload):
    space = spaces.Box(np.float32([0, -np.inf, -np.inf]), np.float32([np.inf, 1, np.inf]))
    loaded = reload(Constant(-5.0, 5.0, -7.0), lambda: gym.wrappers.ClipAction(Toy(action=space)))
    assert loaded(np.zeros(4, np.float32)).tolist() == [0, 1, -7]


def normalizing() -> gym.Env:
    return gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))


def test_an_environment_that_learns_is_refused(reload):
    with pytest.raises(ConfigError, match="put a RunningNorm into the network"):
        reload(policy(4, 2), normalizing).make_env()


ENVIRONMENT = """
import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

class Pushed(CartPoleEnv):
    def __init__(self, push=10.0, **kwargs):
        super().__init__(**kwargs)
        self.force_mag = push

gym.register("Mine/Pushed-v0", ENTRY, max_episode_steps=4, kwargs={"push": 5.0})
"""
SAVES = """
import sys
from pathlib import Path
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.loop import Progress
from hooktrainer.policies import PolicyRecorder

if __name__ == "__main__":
    policy = CategoricalPolicy(mlp(4, 2, ()))
    recorder = PolicyRecorder(Path(sys.argv[1]), policy, ID, {"sutton_barto_reward": False})
    recorder.save(Progress(frames=1))
"""


@pytest.fixture
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("of_mine", "hooktrainer_env"):
            del sys.modules[name]


@pytest.mark.usefixtures("warm_python")
@pytest.mark.usefixtures("_forget_modules")
@pytest.mark.parametrize(
    ("env_id", "entry", "where"),
    [
        ("Mine/Pushed-v0", "Pushed", "in the script"),
        ("of_mine:Mine/Pushed-v0", "'of_mine.envs:Pushed'", "in a package"),
    ],
)
def test_an_id_that_somebody_registered_is_made_again_by_others(
    env_id, entry, where, tmp_path, monkeypatch
):
    environment = ENVIRONMENT.replace("ENTRY", entry)
    saves = SAVES.replace("ID", repr(env_id))
    files = {
        "in the script": {"train.py": environment + saves},
        "in a package": {
            "of_mine/__init__.py": "from . import envs",
            "of_mine/envs.py": environment,
            "train.py": "import of_mine" + saves,
        },
    }[where]
    (tmp_path / "of_mine").mkdir()
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    script = [sys.executable, tmp_path / "train.py", tmp_path / "policies"]
    subprocess.run(script, check=True, timeout=120)
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = load_policy(find_policy(tmp_path / "policies"), trust=True)
    env = loaded.make_env()
    assert env.unwrapped.force_mag == 5.0
    assert play_episodes(loaded, episodes=1, env=env) == [Episode(4.0, 4)]
    assert loaded.saved.env_kwargs == {"sutton_barto_reward": False}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "Gone/CartPole-v1"}, "environment Gone/CartPole-v1 here. If a package registers"),
        ({"wrappers": [["os:gone", {}]]}, "CartPole-v1 could not be made: AttributeError"),
        (
            {
                "id": None,
                "factory": "Toy",
                "module": "gone_for_good",
                "file": "/x/gone_for_good.py",
            },
            "the module gone_for_good in /x/gone_for_good.py, which cannot",
        ),
    ],
    ids=["id", "wrapper", "module"],
)
def test_an_environment_that_is_not_here_is_said(change, problem, save):
    path = save(policy(4, 2), "CartPole-v1")
    change_facts(path, env=read_facts(path)["env"] | change)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_policy(path, trust=True).make_env()


def test_an_id_in_place_of_an_environment_is_refused(reload):
    with pytest.raises(ConfigError, match=r"is an id: pass gymnasium.make\('CartPole-v1'\)"):
        play_episodes(reload(policy(4, 2), "CartPole-v1"), env="CartPole-v1")


@pytest.mark.parametrize(
    "action", [spaces.Discrete(2), spaces.MultiDiscrete([3, 3]), spaces.Box(-1.0, 1.0, (2,))]
)
def test_actions_of_another_environment_are_refused(action, reload):
    loaded = reload(CategoricalPolicy(mlp(4, 9, ())), lambda: Toy(action=spaces.Discrete(9)))
    with pytest.raises(ConfigError, match=r"the policy's action \d .* not the one that the policy"):
        play_episodes(loaded, episodes=20, env=Toy(action=action))


LIGHT = """
import sys
from hooktrainer import load_policy
import numpy as np
policy = load_policy(sys.argv[1])
print(policy(np.zeros(4, dtype="float32")))
heavy = ("tensordict", "torchrl", "gymnasium", "hooktrainer.trainer", "hooktrainer.networks")
assert not [name for name in heavy if name in sys.modules], sys.modules.keys()
"""


def test_loading_needs_no_training_code(save, tmp_path):
    path = save(policy())
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("0", "1", "2")


def test_drawn_episodes_are_the_same_for_the_same_seed_and_their_own_for_each_episode(save):
    path = save(CategoricalPolicy(mlp(4, 3, (8,))), lambda: Toy(action=spaces.Discrete(3)))

    def actions(seed, **options):
        drawing = load_policy(path, deterministic=False, trust=True)
        seen = []
        env = Toy(action=spaces.Discrete(3))
        play_episodes(drawing, seed, 2, lambda step: seen.append(step.action), env=env, **options)
        return [None if action is None else int(action) for action in seen]

    first = actions(1)
    assert first == actions(1)
    assert first != actions(2)
    half = len(first) // 2
    assert first[:half] != first[half:]
