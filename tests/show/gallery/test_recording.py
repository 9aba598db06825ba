"""Recordings of episodes, with and without a screen."""

from __future__ import annotations

import ctypes.util
import os
import sys

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from saved_runs import Drawing, Failing, Still

from hooktrainer.errors import ConfigError
from hooktrainer.loop import Progress
from hooktrainer.networks import AgentsPolicy, Policy, distribution_for, mlp
from hooktrainer.policies import PolicyRecorder, load_policy, play_episodes
from hooktrainer.show import View, record_episodes


def policy_of(run):
    return load_policy(run.path, trust=True)


def test_the_recorded_episode_is_the_played_one(make_run):
    policy = policy_of(make_run())
    recorded = record_episodes(policy, seed=5, episodes=2, view=View(size=60, seconds=0.2))
    played = play_episodes(policy, 5, 2)
    assert [(r.total, r.length) for r in recorded] == [(p.return_, p.length) for p in played]


def test_cartpole_is_drawn_at_its_own_speed_and_cut_off(make_run):
    (recorded,) = record_episodes(policy_of(make_run()), view=View(size=60, fps=25, seconds=1))
    assert recorded.reason is None
    assert recorded.length == 500
    assert recorded.fps == 25  # every second of CartPole's 50 steps a second
    assert recorded.seconds == 10.0
    assert recorded.seconds_shown == 1.0
    assert {frame.shape for frame in recorded.frames} == {(40, 60, 3)}
    assert recorded.frames[0].std() > 0


def test_the_last_picture_is_the_end_of_the_episode(make_run):
    (recorded,) = record_episodes(policy_of(make_run(env=Drawing, policies={0: (1.0, 0.0, 0.0)})))
    # Steps 0, 2 and 4 are every second of five, and then the end.
    assert [int(frame[0, 0, 0]) for frame in recorded.frames] == [0, 80, 160, 200]
    assert recorded.total == 10.0


def test_an_environment_that_fails_to_draw_is_played(make_run):
    (recorded,) = record_episodes(policy_of(make_run(env=Failing, policies={0: (1.0, 0.0, 0.0)})))
    assert recorded.reason == "drawing failed: RuntimeError: no light in here"
    assert recorded.frames == []
    assert recorded.total == 10.0


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((400, 600, 3), (240, 360, 3)), ((600, 400, 3), (360, 240, 3)), ((21, 31, 3), (20, 32, 3))],
)
def test_pictures_are_shrunk_never_enlarged_and_even(shape, expected, make_run, monkeypatch):
    monkeypatch.setattr(Drawing, "render", lambda self: np.zeros(shape, np.uint8))
    policy = policy_of(make_run(env=Drawing, policies={0: (1.0, 0.0, 0.0)}))
    (recorded,) = record_episodes(policy, view=View(size=360))
    assert recorded.frames[0].shape == expected


@pytest.mark.parametrize("wrong", [{"size": 0}, {"fps": 0.0}, {"seconds": -1.0}])
def test_invalid_views_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        View(**wrong)


def test_environments_of_several_agents_are_drawn(tmp_path):
    env = "pettingzoo/mpe/simple_spread_v3"
    torch.manual_seed(0)
    keys = [("agents", "observation")]
    agents = AgentsPolicy({"agents": Policy(mlp(18, 5), distribution_for(Discrete(5)), keys)})
    recorder = PolicyRecorder(tmp_path / "policies", agents, env)
    recorder.save(Progress())
    policy = load_policy(tmp_path)
    (recorded,) = record_episodes(policy, view=View(size=60, fps=10, seconds=1))
    assert recorded.reason is None
    assert recorded.fps == pytest.approx(10)
    assert recorded.frames[0].std() > 0
    assert (recorded.frames[0] != recorded.frames[-1]).any()
    (played,) = play_episodes(policy, episodes=1)
    assert (recorded.total, recorded.length) == (played.return_, played.length)


@pytest.mark.parametrize(
    ("env", "needs"),
    [("LunarLander-v3", "Box2D"), ("Pendulum-v1", "pygame"), ("InvertedPendulum-v5", "mujoco")],
)
def test_other_environments_are_drawn(env, needs, make_run, tmp_path):
    pytest.importorskip(needs)
    recorder = PolicyRecorder(tmp_path / "policies", Still(env), env)
    recorder.save(Progress())
    (recorded,) = record_episodes(load_policy(tmp_path), view=View(size=60, seconds=0.3))
    if needs == "mujoco" and recorded.reason is not None:
        pytest.skip(recorded.reason)
    assert recorded.reason is None
    assert len(recorded.frames) > 3
    assert recorded.frames[0].std() > 0


@pytest.mark.skipif(sys.platform != "linux", reason="MuJoCo chooses itself there")
@pytest.mark.parametrize(
    ("installed", "wanted", "display", "expected"),
    [
        (["EGL", "OSMesa"], None, None, "egl"),
        (["EGL"], "osmesa", None, "egl"),  # MuJoCo would not start
        ([], None, None, "disable"),
        ([], None, ":0", None),  # there is a screen
    ],
)
def test_mujoco_draws_with_an_installed_library(
    installed, wanted, display, expected, make_run, monkeypatch
):
    policy = policy_of(make_run(env=Drawing, policies={0: (1.0, 0.0, 0.0)}))
    monkeypatch.setattr(ctypes.util, "find_library", lambda n: n if n in installed else None)
    for name, value in (("MUJOCO_GL", wanted), ("DISPLAY", display)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    record_episodes(policy)
    assert os.environ.get("MUJOCO_GL") == expected
