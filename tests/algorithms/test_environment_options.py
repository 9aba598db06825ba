"""The fields of every algorithm that say what is done with its environment."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from goal_envs import BitFlip, Reach
from gymnasium import spaces

from hooktrainer import ConfigError, Evaluate, load_policy
from hooktrainer.algorithms import DQN, DSAC, MAPPO, PPO, TD3
from hooktrainer.collect.make_envs import Wrapped
from hooktrainer.errors import MissingPackageError


class Walk(gym.Env[Any, Any]):
    """Four steps without rewards."""

    observation_space = spaces.Box(0, 4, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, succeeds: bool = True) -> None:
        self.succeeds = succeeds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        info = {"success": self.succeeds, "distance": 4 - self.count, "last": float(np.sum(action))}
        return np.full(1, self.count, np.float32), 0.0, self.count == 4, False, info


def small(kind: Any = PPO, **fields: Any) -> Any:
    given = {"total_frames": 64, "num_envs": 2, "steps_per_batch": 16, "num_cells": (8,)}
    return kind(**given | {"progress_bar": False, "eval_episodes": 2} | fields)


@pytest.mark.parametrize("succeeds", [True, False])
@pytest.mark.parametrize("kind", [PPO, DQN])
def test_what_info_says_is_logged_in_training_and_evaluation(kind: Any, succeeds: bool) -> None:
    run = small(kind, env=partial(Walk, succeeds), info_keys=("success", "distance"))
    reported = run.train().metrics.reported
    assert reported["train/success"] == reported["eval/success"] == float(succeeds)
    assert reported["train/distance"] == reported["eval/distance"] == 0.0


@pytest.mark.parametrize("kind", [PPO, DSAC])
def test_evaluations_draw_actions_if_asked_to(kind: Any) -> None:
    fields = {"env": Walk, "info_keys": ("last",), "eval_episodes": 64, "tuned": False}
    best, drawn = (
        small(kind, **fields, eval_deterministic=wanted).train().metrics.reported["eval/last"]
        for wanted in (True, False)
    )
    assert best in (0.0, 1.0)
    assert 0.1 < drawn < 0.9


def test_an_info_key_that_never_comes_leaves_nothing_behind(tmp_path: Any) -> None:
    run = small(env="CartPole-v1", info_keys=("success",), run_dir=str(tmp_path / "run"))
    with pytest.raises(ConfigError, match="no 'success' in the info"):
        run.train()
    assert not (tmp_path / "run").exists()


def test_it_is_trained_and_played_in_what_is_usual_for_each(capsys: Any) -> None:
    fields = {"env": "ALE/Breakout-v5", "total_frames": 8, "steps_per_batch": 4}
    run = small(**fields, eval_episodes=1, tuned=False)
    trainer = run.trainer()
    evaluate = trainer.registry.modules["evaluate"]
    assert isinstance(evaluate, Evaluate)
    last = [spec.additional_wrappers[-1] for spec in (trainer.collector._env, evaluate.env)]
    assert [wrapper.kwargs for wrapper in last] == [{"end_episodes": True}, {"end_episodes": False}]
    trainer.shutdown()
    small(**fields, eval_episodes=0, tuned=False).train()
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("ALE/Breakout-v5 with the wrappers usual for Atari: 84x84 gray")
    assert run.as_dict()["usual_wrappers"] is True


class Sized(Walk):
    """Its observations, and its continuous actions if it has them, are of a size that is given."""

    def __init__(self, size: int = 1, continuous: bool = False) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 4, (size,))
        self.action_space = spaces.Box(-1, 1, (size,)) if continuous else spaces.Discrete(2)

    def reset(self, **options: Any) -> Any:
        return np.repeat(super().reset(**options)[0], self.observation_space.shape[0]), {}

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        return np.repeat(seen, self.observation_space.shape[0]), *rest


@pytest.mark.parametrize("continuous", [True, False])
def test_env_kwargs_are_those_of_a_function_everywhere(continuous: bool, tmp_path: Any) -> None:
    given = {"size": 3, "continuous": continuous}
    run = small(env=Sized, env_kwargs=given, run_dir=tmp_path, snapshots=2)
    assert run.train().metrics.reported["eval/length"] == 4
    policy = load_policy(tmp_path, trust=True)
    assert policy(np.zeros(3, np.float32)).shape == (3,) * continuous
    assert policy.make_env().observation_space.shape == (3,)
    with pytest.raises(ConfigError, match=r"env_kwargs=.* goes with an id or one factory"):
        small(env=[Sized, Sized], env_kwargs=given).trainer()


class Doubled(gym.Wrapper[Any, Any, Any, Any]):
    """Doubles rewards; a class that records no arguments."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, 2 * reward, *rest


def plus_one(env: Any) -> Any:
    """A function that is a wrapper: each reward is one more."""
    return gym.wrappers.TransformReward(env, lambda reward: reward + 1)


def adds(number: int) -> Any:
    def inner(env: Any) -> Any:
        return gym.wrappers.TransformReward(env, lambda reward: reward + number)

    return inner


plus_two = adds(2)  # which has another name than this
HERE = f"{__name__}:"


@pytest.mark.parametrize(
    ("names", "reward"),
    [(("Doubled", "plus_one"), 3.0), (("plus_one", "Doubled"), 4.0), (("plus_two",), 3.0)],
)
def test_wrappers_are_put_around_in_their_order_everywhere(
    names: Any, reward: float, tmp_path: Any
) -> None:
    run = small(
        env="CartPole-v1",
        env_kwargs={"sutton_barto_reward": False},
        wrappers=[HERE + name for name in names],
        run_dir=tmp_path,
        snapshots=2,
    )
    trainer = run.train()
    assert trainer.metrics.reported["train/reward"] == reward
    reported = trainer.metrics.reported
    assert reported["eval/return"] == reported["eval/length"] * reward
    with pytest.raises(ConfigError, match=f"needs the wrapper {HERE}{names[0]}"):
        load_policy(tmp_path).make_env()
    env = load_policy(tmp_path, trust=True).make_env()
    env.reset()
    assert env.step(0)[1] == reward


def test_a_function_is_a_wrapper_of_clipped_actions_too(tmp_path: Any) -> None:
    fields = {"env": "Pendulum-v1", "wrappers": f"{HERE}plus_one", "tuned": False}
    small(**fields, run_dir=tmp_path, snapshots=2).train()
    env, plain = load_policy(tmp_path, trust=True).make_env(), gym.make("Pendulum-v1")
    for one in (env, plain):
        one.reset(seed=0)
    clipped = plain.step(np.full(1, 2, np.float32))[1]
    assert env.step(np.full(1, 9, np.float32))[1] == clipped + 1


def test_a_class_around_a_specification_is_saved_with_a_policy(tmp_path: Any) -> None:
    env = Wrapped(Doubled, gym.spec("CartPole-v1"))
    small(env=env, run_dir=tmp_path, snapshots=2).train()
    made = load_policy(tmp_path, trust=True).make_env()
    made.reset()
    assert made.step(0)[1] == 2.0


def test_a_saved_policy_finds_the_file_of_a_wrapper(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "wraps_of_mine.py"
    file.write_text("import gymnasium\n\n\nclass Mine(gymnasium.Wrapper):\n    pass\n")
    monkeypatch.setattr(sys, "path", path := [*sys.path])
    small(env="CartPole-v1", wrappers=f"{file}:Mine", run_dir=tmp_path, snapshots=2).train()
    del sys.modules["wraps_of_mine"]
    path.remove(str(tmp_path))
    with pytest.raises(ConfigError, match="needs the wrapper wraps_of_mine:Mine"):
        load_policy(tmp_path).make_env()
    assert str(tmp_path) not in path
    assert type(load_policy(tmp_path, trust=True).make_env()).__name__ == "Mine"
    del sys.modules["wraps_of_mine"]
    file.unlink()
    importlib.invalidate_caches()
    with pytest.raises(
        MissingPackageError, match="No module named 'wraps_of_mine': install it, or"
    ):
        load_policy(tmp_path, trust=True).make_env()


@pytest.mark.parametrize("env", ["MinAtar/Breakout-v1", "MiniGrid-Empty-5x5-v0"])
def test_arguments_of_an_environment_with_usual_wrappers_are_refused_in_one_line(env: str) -> None:
    with pytest.raises(ConfigError, match=r"^env_kwargs={'no': 1}.* unexpected keyword"):
        small(env=env, env_kwargs={"no": 1}).trainer()


def flips() -> Any:
    """Flips of three bits; a step costs -0.5 in place of 0, and -2.5 in place of -1."""
    doubled = gym.wrappers.TransformReward(BitFlip(3), lambda reward: 2 * reward)
    limited = gym.wrappers.TimeLimit(doubled, 3)
    return gym.wrappers.TransformReward(limited, lambda reward: reward - 0.5)


def reaches() -> Any:
    """The same of a point, whose rewards are computed one by one."""
    return gym.wrappers.TransformReward(Reach(), lambda reward: 2 * reward - 0.5)


@pytest.mark.parametrize(("kind", "env"), [(DQN, flips), (TD3, reaches)])
def test_rewards_for_other_goals_are_those_after_the_wrappers(kind: Any, env: Any) -> None:
    fields = {"init_random_frames": 0, "optim_steps_per_batch": 1, "tuned": False}
    run = small(kind, env=env, her="final", her_goals=99, eval_episodes=0, batch_size=512, **fields)
    trainer, seen = run.trainer(), []
    trainer.register_op(
        "process_optim_batch", lambda batch: seen.append(batch["next", "reward"].unique().tolist())
    )
    trainer.train()
    assert {reward for one in seen for reward in one} == {-0.5, -2.5}


def test_wrappers_are_around_the_usual_ones() -> None:
    run = small(env="MinAtar/Breakout-v1", wrappers=("hooktrainer.collect:LastReward",))
    trainer = run.trainer()
    wrappers = [spec.entry_point for spec in trainer.collector._env.additional_wrappers]
    assert [name.rpartition(":")[2] for name in wrappers] == ["FirstAction", "LastReward"]
    trainer.shutdown()


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"wrappers": [Doubled]}, "Doubled'>: name an object as path/to/file.py:Name"),
        ({"wrappers": "nothing"}, "name an object as path/to/file.py:Name or module:Name"),
        ({"wrappers": "gymnasium.wrappers:Doubled"}, "there is no Doubled in it"),
        (
            {"wrappers": "gymnasium.wrappers:FrameStackObservation"},
            "with an environment `env` alone .missing a required argument: 'stack_size'",
        ),
        (
            {"wrappers": "gymnasium.wrappers:NormalizeObservation"},
            "are part of no saved policy, and differ in evaluations: pass normalize_observations",
        ),
        ({"wrappers": "gymnasium.wrappers:NormalizeReward"}, "pass scale_rewards=True in place"),
        (
            {"wrappers": "gymnasium.wrappers:ClipAction"},
            r"^wrappers=\['gymnasium.wrappers:ClipAction'\]: TypeError: ClipAction requires a Box",
        ),
        ({"env_kwargs": {"no": 1}}, "^env_kwargs={'no': 1}, wrappers=.* unexpected keyword"),
        ({"env": Walk}, "is none: wrap it in a function that makes it"),
        ({"env": "torch/CartPole-v1"}, "is none: wrap it in a function that makes it"),
        (
            {"kind": MAPPO, "env": "vmas/balance"},
            r"are for one agent: wrap vmas/balance in a function",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_refused(fields: Any, advice: str) -> None:
    given = {"env": "CartPole-v1", "wrappers": HERE + "Doubled"} | fields
    with pytest.raises(ConfigError, match=advice):
        small(**given).trainer()
