"""Every option of a collector's configuration is honoured, or refused by name."""

from __future__ import annotations

import multiprocessing

import gymnasium as gym
import numpy as np
import pytest
import torch
from builder_configs import config, value_net

from hooktrainer import ConfigError, builders
from hooktrainer.networks import QNetwork, mlp


class Endless(gym.Env):
    """Never ends by itself."""

    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}


def collect(make_env, build=builders.make_collector_offpolicy, **fields) -> torch.Tensor:
    """One batch."""
    collector = build(make_env, QNetwork(mlp(4, 2)), config(**fields))
    batch = next(iter(collector))
    collector.shutdown()
    return batch


@pytest.mark.parametrize("option", ["async_collection", "multi_step"])
@pytest.mark.parametrize("make_env", ["CartPole-v1", lambda: gym.make("CartPole-v1")])
def test_what_is_off_policy_is_refused_on_policy(option, make_env):
    with pytest.raises(
        ConfigError, match=rf"make_collector_onpolicy: cfg\.{option}=True is off-policy"
    ):
        builders.make_collector_onpolicy(make_env, None, config(**{option: True}))


@pytest.mark.parametrize(
    ("option", "value"),
    [("async_collection", True), ("multi_step", True), ("collector_device", ["cpu", "meta"])],
)
def test_what_a_vector_collector_cannot_do_is_refused(option, value):
    with pytest.raises(ConfigError, match=rf"cfg\.{option}=.*needs a TorchRL environment"):
        collect("CartPole-v1", **{option: value})


@pytest.mark.parametrize("build", [Endless, lambda size: Endless()], ids=["class", "kwargs"])
def test_episodes_are_limited(build):
    kwargs = None if build is Endless else {"size": 1}
    cfg = config(max_frames_per_traj=7)
    collector = builders.make_collector_offpolicy(build, QNetwork(mlp(4, 2)), cfg, kwargs)
    batch = next(iter(collector))
    collector.shutdown()
    assert batch["next", "truncated"].flatten().nonzero().flatten().tolist() == [6, 13]


def test_the_frame_skip_of_an_id_is_applied():
    cfg = config(frame_skip=4, max_frames_per_traj=5, num_workers=1)
    collector = builders.make_collector_offpolicy("Pendulum-v1", None, cfg)
    assert collector.frame_skip == 4
    batch = next(iter(collector))
    assert batch["next", "truncated"].flatten().nonzero().flatten().tolist() == [4, 9, 14, 19]
    collector.shutdown()
    by_hand = builders.make_collector_offpolicy(Endless, None, cfg)
    assert by_hand.frame_skip == 1  # the function would repeat the actions itself
    by_hand.shutdown()


def test_environments_are_stepped_by_as_many_processes_as_asked_for():
    def workers(**fields):
        before = {child.pid for child in multiprocessing.active_children()}
        collector = builders.make_collector_onpolicy(
            "CartPole-v1", QNetwork(mlp(4, 2)), config(num_workers=4, **fields)
        )
        batch = next(iter(collector))
        processes = len({child.pid for child in multiprocessing.active_children()} - before)
        collector.shutdown()
        return processes, batch

    number, here = workers(max_frames_per_traj=None, collector_device=torch.device("cpu"))
    assert number == 0
    assert workers(env_per_collector=0)[0] == workers(env_per_collector=4)[0] == 0
    number, apart = workers(env_per_collector=2)
    assert number == 2
    assert apart["observation"].equal(here["observation"])


def test_parallel_environments_that_are_built_can_be_collected_from():
    cfg = config(env_per_collector=2, num_workers=2, total_frames=20)
    stats = {"loc": torch.zeros(4), "scale": torch.ones(4)}
    envs = builders.parallel_env_constructor(cfg, stats=stats)
    collector = builders.make_collector_offpolicy(envs, value_net(), cfg)
    assert [batch.shape for batch in collector] == [(2, 10)]
    collector.shutdown()
    envs = builders.parallel_env_constructor(cfg, stats=stats)
    with pytest.raises(ConfigError, match=r"built already, but cfg\.num_workers=4"):
        builders.make_collector_offpolicy(
            envs, value_net(), config(**vars(cfg) | {"num_workers": 4})
        )
    envs.close(raise_if_closed=False)
