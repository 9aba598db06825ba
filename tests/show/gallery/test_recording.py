"""Playing an episode for the eye."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from saved_runs import Drawing, Failing, Silent, Still

from hooktrainer.errors import ConfigError
from hooktrainer.loop.cadence import Progress
from hooktrainer.networks import AgentsPolicy, Policy, distribution_for, mlp
from hooktrainer.policies import load_policy, play_episodes
from hooktrainer.policies.describe_environment import describe
from hooktrainer.policies.recorder import PolicyRecorder
from hooktrainer.show.gallery import View, record_episodes
from hooktrainer.show.gallery.recording import scaled

sys.path.append(str(Path(__file__).parents[2] / "collect" / "agents"))

from toy_parallel import Leaving


def policy_of(run):
    return load_policy(run.path, trust=True)


def test_what_is_recorded_is_the_episode_that_is_played(make_run):
    policy = policy_of(make_run())
    recorded = record_episodes(policy, seed=5, episodes=2, view=View(size=60, seconds=0.2))
    played = play_episodes(policy, 5, 2)
    assert [(r.total, r.length) for r in recorded] == [(p.return_, p.length) for p in played]
    assert [r.episode for r in recorded] == [0, 1]


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


def test_the_numbers_of_an_environment_that_does_not_draw(make_run):
    (recorded,) = record_episodes(policy_of(make_run(env=Silent, policies={0: (1.0, 2.5, 0.0)})))
    assert recorded.frames == []
    assert recorded.reason == "Silent does not draw: of its render modes [] none is rgb_array"
    np.testing.assert_array_equal(recorded.observations[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(recorded.actions[:, 0], [0, 0, 0, 1, 1])
    assert recorded.left_out == (0, 0)


def test_an_environment_that_fails_to_draw_is_played_all_the_same(make_run):
    (recorded,) = record_episodes(policy_of(make_run(env=Failing, policies={0: (1.0, 0.0, 0.0)})))
    assert recorded.reason == "drawing failed: RuntimeError: no light in here"
    assert recorded.frames == []
    assert recorded.total == 10.0


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((400, 600, 3), (240, 360, 3)), ((600, 400, 3), (360, 240, 3)), ((21, 31, 3), (20, 32, 3))],
)
def test_pictures_are_shrunk_never_enlarged_and_even(shape, expected):
    assert scaled(np.zeros(shape, np.uint8), 360).shape == expected


def test_what_is_no_picture_is_refused():
    with pytest.raises(TypeError, match=r"float64 \[4, 4, 3\] instead of uint8"):
        scaled(np.zeros((4, 4, 3)), 360)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"fps": 0.0}, {"seconds": -1.0}])
def test_a_view_that_shows_nothing_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        View(**wrong)


def still_agents(env: str) -> AgentsPolicy:
    groups = describe(env).groups
    return AgentsPolicy(
        {
            group.name: Policy(
                mlp(math.prod(group.observation_space.shape), width),
                distribution_for(group.action_space),
                [(group.name, "observation")],
            )
            for group in groups
            for width in [distribution_for(group.action_space).parameter_features]
        }
    )


@pytest.mark.parametrize("env", ["pettingzoo/mpe/simple_spread_v3", "vmas/balance"])
def test_environments_of_several_agents_are_drawn(env, tmp_path):
    torch.manual_seed(0)
    recorder = PolicyRecorder(tmp_path / "policies", still_agents(env), env)
    recorder.save(Progress())
    recorder.wait()
    policy = load_policy(tmp_path)
    (recorded,) = record_episodes(policy, view=View(size=60, fps=10, seconds=1))
    if "vmas" in env and recorded.reason is not None:  # it needs OpenGL
        assert "drawing failed" in recorded.reason
        pytest.skip(recorded.reason)
    assert recorded.reason is None
    assert recorded.fps == pytest.approx(10)
    assert recorded.frames[0].std() > 0
    assert (recorded.frames[0] != recorded.frames[-1]).any()
    (played,) = play_episodes(policy, episodes=1)
    assert (recorded.total, recorded.length) == (played.return_, played.length)


def test_the_numbers_of_agents_that_leave_keep_their_places(tmp_path):
    recorder = PolicyRecorder(tmp_path / "policies", Herd(), Leaving)
    recorder.save(Progress())
    recorder.wait()
    (recorded,) = record_episodes(load_policy(tmp_path, trust=True))
    assert recorded.reason == "Leaving does not draw: of its render modes [] none is rgb_array"
    start, nan = recorded.observations[0, 0], np.nan
    np.testing.assert_array_equal(
        recorded.observations,  # two numbers of each of three, who leave after 2, 3 and 4 steps
        [
            [start, 0, start, 0, start, 0],
            [start, 1, start, 1, start, 1],
            [nan, nan, start, 2, start, 2],
            [nan, nan, nan, nan, start, 3],
        ],
    )
    np.testing.assert_array_equal(recorded.actions[:, 1], [1, 1, 1, nan])


class Herd(torch.nn.Module):
    """All take the first action."""

    in_keys = (("cat", "observation"), ("dog", "observation"))
    out_keys = (("cat", "action"), ("dog", "action"))

    def act(self, cats, dogs):
        return {
            ("cat", "action"): torch.zeros(cats.shape[:2], dtype=torch.int64),
            ("dog", "action"): torch.zeros_like(dogs[..., :1]),
        }


@pytest.mark.parametrize(
    ("env", "needs"),
    [("LunarLander-v3", "Box2D"), ("Pendulum-v1", "pygame"), ("InvertedPendulum-v5", "mujoco")],
)
def test_other_environments_are_drawn(env, needs, make_run, tmp_path):
    pytest.importorskip(needs)
    recorder = PolicyRecorder(tmp_path / "policies", Still(env), env)
    recorder.save(Progress())
    recorder.wait()
    (recorded,) = record_episodes(load_policy(tmp_path), view=View(size=60, seconds=0.3))
    if needs == "mujoco" and recorded.reason is not None:
        assert "MUJOCO_GL" in recorded.reason or "libEGL" in recorded.reason
        pytest.skip(recorded.reason)
    assert recorded.reason is None
    assert len(recorded.frames) > 3
    assert recorded.frames[0].std() > 0
