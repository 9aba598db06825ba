"""What can be passed as environments, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from agents.toy_parallel import Leaving
from toy_envs import Counter, VectorCounter

from hooktrainer import ConfigError, VectorCollector


def build(env: Any, **kwargs: Any) -> VectorCollector:
    return VectorCollector(env, **{"frames_per_batch": 4, **kwargs})


@pytest.mark.parametrize(
    "env", [Counter, gym.spec("Pendulum-v1"), "gymnasium:CartPole-v1", [Counter, Counter]]
)
def test_factories_specifications_and_ids_are_taken(env: Any) -> None:
    number = None if isinstance(env, list) else 2
    assert build(env, num_envs=number).collect().shape == (2, 2)


def _fail(size: int) -> gym.Env[Any, Any]:
    """An environment that asserts its arguments, as MiniGrid's do."""
    raise AssertionError


def test_keyword_arguments_are_the_environments() -> None:
    env = build("Pendulum-v1", num_envs=1, env_kwargs={"g": 1.0}).envs._envs[0]
    assert env.unwrapped.g == 1.0


@pytest.mark.parametrize(
    ("env", "kwargs", "message"),
    [
        ("CartPole-v7", {"num_envs": 1}, r"no environment 'CartPole-v7'\. Did you mean CartPole-v"),
        ("zzzzzzzz", {"num_envs": 1}, r"no environment 'zzzzzzzz'\. Import"),
        ("CartPole-v1", {}, "num_envs=None: give the number of environments of CartPole-v1"),
        ("CartPole-v1", {"num_envs": 0}, "num_envs=0"),
        (Counter, {"num_envs": 2.0}, "num_envs=2.0"),
        ("CartPole-v1", {"num_envs": 1, "groups": {"a": ["b"]}}, "groups: .* a single agent"),
        (Leaving, {"num_envs": 1, "categorical_actions": False}, "categorical_actions=False"),
        (VectorCounter(2), {"compile": True}, "compile: VectorCounter"),
        ("vmas/balance", {"num_envs": 1, "traj_ids": True}, "traj_ids: vmas/balance"),
        ("CartPole-v1", {"num_envs": 1, "seed": -1}, "seed=-1"),
        ("CartPole-v1", {"num_envs": 3}, r"frames_per_batch=4 .* num_envs=3"),
        ("CartPole-v1", {"num_envs": 1, "frames_per_batch": 0}, "frames_per_batch=0"),
        ("CartPole-v1", {"num_envs": 1, "total_frames": 0}, "total_frames=0"),
        ("CartPole-v1", {"num_envs": 1, "frame_skip": 0}, "frame_skip=0"),
        ("CartPole-v1", {"num_envs": 1, "init_random_frames": -1}, "init_random_frames=-1"),
        (
            "Pendulum-v1",
            {"num_envs": 1, "vectorization_mode": "vector_entry_point"},
            "Pendulum-v1 has no vector entry point",
        ),
        ([], {}, "empty list"),
        ([Counter], {"num_envs": 2}, "num_envs=2, but env holds 1"),
        ([Counter], {"env_kwargs": {"length": 3}}, "env_kwargs=.* goes with an id or one factory"),
        (_fail, {"num_envs": 1, "env_kwargs": {"size": 1}}, "env_kwargs={'size': 1}: Assertion"),
        (
            "torch/Pendulum-v1",
            {"num_envs": 1, "env_kwargs": {"g": "x"}},
            "torch/Pendulum-v1 cannot be made .* g='x' is not a number",
        ),
        (
            "torch/MinAtar-Breakout",
            {"num_envs": 1, "env_kwargs": {"sticky_action_prob": 7}},
            "sticky_action_prob=7: pass a number between 0 and 1",
        ),
        (
            "torch/MinAtar-Breakout",
            {"num_envs": 1, "env_kwargs": {"sticky_action_prob": "high"}},
            "torch/MinAtar-Breakout cannot be made with env_kwargs={'sticky_action_prob': 'high'}",
        ),
        ([lambda: 3], {}, "env builds a int"),
        (3, {"num_envs": 1}, "env=3 is a int, not a gymnasium.Env"),
        ([Counter, lambda: gym.make("CartPole-v1")], {}, "Environment 1 has the observation_space"),
    ],
)
def test_what_cannot_work_is_refused(env: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(env, **kwargs).collect()


def test_one_environment_passed_twice_is_refused() -> None:
    env = Counter()
    with pytest.raises(ConfigError, match="one and the same object"):
        build([lambda: env, lambda: env])


def test_environments_are_closed_when_building_fails() -> None:
    closed = []

    class Env(Counter):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(ConfigError):
        build([Env, Env, Env])  # 4 frames for 3 environments
    assert len(closed) == 3


def test_an_error_in_an_environment_names_it() -> None:
    class Env(Counter):
        def step(self, action: Any) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        build([Counter, Env]).collect()
    assert any("stepping environment 1, <Env instance>" in n for n in caught.value.__notes__)
