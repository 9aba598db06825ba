"""A world of one environment as one of Gymnasium's, which saved policies play."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from hooktrainer import PolicySnapshot, list_policies, load_policy, play_episodes
from hooktrainer.algorithms import PPO
from hooktrainer.collect.action_format import clipped
from hooktrainer.collect.make_envs import Wrapped, make_one
from hooktrainer.collect.worlds import FunctionalWorld, make_tensor_world
from hooktrainer.collect.worlds.world_env import WorldEnv
from hooktrainer.policies.exported import export_policy, record
from hooktrainer.show.gallery.recording import record_episodes

SMALL = {"num_envs": 4, "steps_per_batch": 8, "total_frames": 64, "progress_bar": False}


class Push(FunctionalWorld):
    """The reward is the action, whatever it is, and 10 for the next column."""

    name = "push"
    observation_space = spaces.Dict({"at": spaces.Dict({"x": spaces.Box(-9.0, 9.0, (2,))})})
    action_space = spaces.Box(-1.0, 1.0, (1,))
    max_episode_steps = 5
    num_uniforms = 2
    frame_skip = 3

    def __init__(self, num_envs, column=0, **options):
        super().__init__(num_envs, **options)
        self.column = column

    def initial(self, uniform):
        return uniform

    def transition(self, state, action):
        return state + 1, action[:, 0] + 10 * self.column, state[:, 0] > 99

    def observe(self, state):
        return {("at", "x"): state}

    def render(self, state):
        return torch.full((8, 6, 3), int(state[0, 0]), dtype=torch.uint8)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's, on bounds of observations
def test_every_kind_of_world_is_an_environment_of_gymnasium():
    for env_id in ("CartPole-v1", "Pendulum-v1", "MinAtar-Breakout", "MiniGrid-Unlock-v0"):
        check_env(WorldEnv(make_tensor_world(f"torch/{env_id}", 1)), skip_render_check=True)


def test_an_episode_is_the_first_of_the_world_and_its_last_observation_the_true_one():
    world, env = make_tensor_world(Push, 4), make_one(Push, {"column": 2})
    world.seed(7)
    observation, info = env.reset(seed=7)
    assert np.array_equal(observation["at"]["x"], world.reset()["at", "x"][0])
    assert info == {}
    for step in range(1, 6):
        *_, reward, terminated, truncated, _ = env.step(np.array([0.5], np.float32))
        assert (reward, terminated, truncated) == (20.5, False, step == 5)
    last = env.step(np.array([0.5], np.float32))[0]["at"]["x"]
    assert (last < 2).all()  # of the next episode, which begins by itself
    env.reset(seed=7)
    *_, last = (env.step(np.array([0.5], np.float32))[0]["at"]["x"] for _ in range(5))
    assert np.allclose(last, observation["at"]["x"] + 5)


def test_the_last_picture_is_of_the_episode_that_ended():
    env = make_one(Push)
    pictures = []
    env.reset(seed=7)
    for _ in range(5):
        pictures.append(env.render()[0, 0, 0])
        env.step(np.array([0.5], np.float32))
    assert [*pictures, env.render()[0, 0, 0]] == [0, 1, 2, 3, 4, 5]
    env.reset()
    assert env.render()[0, 0, 0] == 0


class Exact(Push):
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def transition(self, state, action):
        assert action.dtype is torch.float32
        return super().transition(state, action)


def test_actions_have_the_type_of_those_in_training():
    env = make_one(Exact)
    env.reset(seed=7)
    assert env.step(np.array([0.5]))[1] == 0.5


def test_an_endless_environment_is_named_by_what_makes_it():
    assert repr(Wrapped(clipped, Push)) == repr(Push)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("clips", [True, False])
def test_its_policies_are_played_in_another_process_drawn_and_filmed(clips, tmp_path):
    few = {"eval_episodes": 2, "clip_actions": clips, "env_kwargs": {"column": 3}}
    PPO(env=Push, run_dir=tmp_path, snapshots=2, log_std=3.0, **few, **SMALL).train()
    saved = list_policies(tmp_path)[-1]
    assert saved.evaluation.lengths == (5,) * 10
    drawing = load_policy(saved, deterministic=False, seed=0, trust=True)
    played = play_episodes(drawing, episodes=20)
    assert all(145 <= episode.return_ <= 155 for episode in played) is clips
    (film,) = record_episodes(load_policy(saved, trust=True))
    assert {frame.shape for frame in film.frames} == {(8, 6, 3)}


def test_a_simulator_that_was_built_before_has_policies_to_export(tmp_path):
    simulator = make_tensor_world(Push, 4)
    trainer = PPO(env=simulator, run_dir=tmp_path, eval_episodes=0, memory="gru", **SMALL).trainer()
    policy = trainer.loss_module.actor_network
    PolicySnapshot(policy, simulator, tmp_path, snapshots=2, report=False).register(trainer)
    trainer.train()
    saved = load_policy(tmp_path)
    assert "built before training" in saved.saved.environment.reason
    inputs, actions = record(saved, 300)
    assert [len(values) for values in (*inputs, *actions)] == [300] * (len(inputs) + len(actions))
    assert abs(float(inputs[0].std()) - 1) < 0.1
    contract = export_policy(tmp_path, tmp_path / "a.pt2", kind="program", observations=300)
    assert contract.largest_difference < 1e-5
