"""Environments written in JAX: gymnax's, Brax's and Playground's, through DLPack."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pretend_jax import is_installed, pretended

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect.worlds import adapt_world, make_tensor_world
from hooktrainer.errors import StateMismatchError
from hooktrainer.testing import check_collector


@pytest.fixture(autouse=True)
def jax(monkeypatch):
    if not is_installed():
        monkeypatch.setitem(sys.modules, "jax", pretended())
    return sys.modules.get("jax") or __import__("jax")


class Params(NamedTuple):
    """As gymnax has them: a structure with ``replace`` and the time limit."""

    max_steps_in_episode: int = 5

    def replace(self, **changes):
        return self._replace(**changes)


class Place(NamedTuple):
    """As gymnax has it: a state with the time."""

    at: Any
    time: Any


class Walk:
    """An environment to the letter of gymnax 1.0: starts in [0, 1), ends at 3, after 5 steps."""

    name = "Walk-v0"
    default_params = Params()

    def reset_env(self, key, params):
        import jax

        at = jax.random.uniform(key)
        return jax.numpy.stack([at]), Place(at, jax.numpy.where(at < 0, 1, 0))

    def step_env(self, key, state, action, params):
        import jax

        state = Place(state.at + action, state.time + 1)
        info = {"discount": state.at * 0, "height": state.at * 2}
        return jax.numpy.stack([state.at]), state, state.at, self.is_terminated(state, params), info

    def is_terminated(self, state, params):
        return state.at >= 3

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def observation_space(self, params):
        return Space(low=0.0, high=np.finfo(np.float32).max, shape=(1,), dtype=np.float32)

    def action_space(self, params):
        return Space(n=2, shape=(), dtype=np.int32)


class OldWalk:
    """The same to the letter of gymnax before 1.0, where one flag says both."""

    name = "OldWalk-v0"
    default_params = Params()
    reset_env = Walk.reset_env
    observation_space = Walk.observation_space
    action_space = Walk.action_space

    def step_env(self, key, state, action, params):
        observed, state, reward, _, info = Walk.step_env(self, key, state, action, params)
        return observed, state, reward, self.is_terminal(state, params), info

    def is_terminated(self, state, params):
        return state.at >= 3

    def is_terminal(self, state, params):
        return (state.at >= 3) | (state.time >= params.max_steps_in_episode)


class Space:
    """A space of gymnax's."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class State(NamedTuple):
    """As Brax and Playground have it."""

    data: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict
    info: dict

    def replace(self, **changes):
        return self._replace(**changes)


class Runner:
    """A bare environment to the letter of Brax and Playground: runs until 3; the wind is random."""

    action_size = 2
    observation_size = 1

    def reset(self, rng):
        import jax

        at = jax.random.uniform(rng)
        observed = {
            "state": jax.numpy.stack([at]),
            "privileged_state": jax.numpy.stack([at, at * 0]),
        }
        info = {"rng": rng, "steps": at * 0}
        return State(at, observed, at * 0, at * 0, {"speed": at * 0}, info)

    def step(self, state, action):
        import jax

        rng = jax.random.fold_in(state.info["rng"], 1)
        wind = jax.random.uniform(rng)
        at = state.data + action[0]
        observed = {"state": jax.numpy.stack([at]), "privileged_state": jax.numpy.stack([at, wind])}
        info = {"rng": rng, "steps": state.info["steps"] + 1}
        done = jax.numpy.where(at >= 3, at * 0 + 1, at * 0)
        return State(at, observed, action[0], done, {"speed": action[0]}, info)


def ones(number: int) -> torch.Tensor:
    return torch.ones(number, dtype=torch.int64)


@pytest.mark.parametrize("env", [Walk(), OldWalk()], ids=lambda env: env.name)
def test_ends_limits_and_final_observations(env):
    world = adapt_world(env, num_envs=2)
    assert isinstance(world.observation_space, spaces.Box)
    assert np.isinf(world.observation_space.high).all()  # the largest number is no bound
    assert world.action_space == spaces.Discrete(2)
    start = world.reset()["observation"].clone()
    assert start.shape == (2, 1)
    assert (start >= 0).all()
    assert (start < 1).all()
    actions = torch.tensor([1, 0])  # one walks to its end, one stays until its limit
    for t in range(1, 6):
        out = world.step(actions)
        if t < 4:
            walked = start + t * actions.unsqueeze(-1)
            torch.testing.assert_close(out.final["observation"], walked)
            torch.testing.assert_close(out.reward, walked.squeeze(-1))
            torch.testing.assert_close(out.log["height"], 2 * walked.squeeze(-1))
            assert out.terminated.tolist() == [t == 3, False]
        assert out.truncated.tolist() == [False, t == 5]
        if t == 3:
            assert out.observation["observation"][0] < 1  # the next episode's first
            assert out.observation["observation"][0] != start[0]
    assert "discount" not in out.log
    assert world.episodes == [1, 1]


@pytest.mark.parametrize("env", [Walk(), (Walk(), Params(7)), Runner()])
def test_the_contract_of_collectors_is_kept(env):
    check_collector(lambda: VectorCollector(env, num_envs=4, frames_per_batch=40, total_frames=120))


def test_the_state_of_another_environment_is_refused():
    state = _running(Walk()).state_dict()
    with pytest.raises(StateMismatchError, match="The saved state of Runner has the arrays"):
        _running(Runner()).load_state_dict(state)


def _running(env):
    world = adapt_world(env, num_envs=2)
    world.reset()
    return world


def test_brax_begins_again_where_it_began_with_other_random_numbers():
    world = adapt_world(Runner(), num_envs=2, max_episode_steps=4)
    assert world.action_space == spaces.Box(-1.0, 1.0, (2,))
    assert set(world.observation_space.spaces) == {"policy", "critic"}
    start = {key: value.clone() for key, value in world.reset().items()}
    action = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    winds = []
    for t in range(1, 9):
        out = world.step(action)
        winds.append(float(out.final["critic"][1, 1]))
        assert out.terminated.tolist() == [t in (3, 6), False]
        assert out.truncated.tolist() == [False, t in (4, 8)]
        if t == 4:
            torch.testing.assert_close(out.observation["policy"][1], start["policy"][1])
        if t == 3:
            torch.testing.assert_close(out.observation["policy"][0], start["policy"][0])
            torch.testing.assert_close(out.final["policy"][0], start["policy"][0] + 3)
        assert out.log["speed"].tolist() == [1, 0]
    assert len(set(winds)) == 8


def test_a_device_that_jax_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="JAX has no device 'meta'"):
        make_tensor_world(Walk(), 2, device="meta")
