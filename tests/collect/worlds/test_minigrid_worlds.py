"""The tasks of MiniGrid as tensors are the originals step for step; layouts are as likely."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from hooktrainer.collect.families import usual_wrappers
from hooktrainer.collect.make_envs import find_spec
from hooktrainer.collect.worlds import make_tensor_world
from hooktrainer.collect.worlds.minigrid.grid_world import FORWARD, GOAL, GridWorld, Start
from hooktrainer.collect.worlds.minigrid.tasks import EmptyWorld, numbered, placed, room
from hooktrainer.collect.worlds.world_ids import WORLDS
from hooktrainer.errors import ConfigError

IDS = [name for name in WORLDS if "MiniGrid" in name]
SMALL = [
    f"torch/MiniGrid-{name}-v0"
    for name in (
        "Empty-6x6",
        "Empty-Random-5x5",
        "DoorKey-5x5",
        "DoorKey-8x8",
        "Unlock",
        "KeyCorridorS3R1",
        "KeyCorridorS3R3",
        "KeyCorridorS5R3",
        "MemoryS7",
        "MemoryS13Random",
        "FourRooms",
        "RedBlueDoors-6x6",
    )
]


def coded(env: Any) -> np.ndarray:
    """The grid of an original as a world has it."""
    cells = env.grid.encode().astype(np.int32)  # by column and row
    return (cells @ [1, 16, 256]).T.flatten()


def goal_of(env: Any) -> int:
    if hasattr(env, "success_pos"):
        return int(env.success_pos[1] * env.width + env.success_pos[0])
    return {"red": 0, "green": 1, "blue": 2, "purple": 3, "yellow": 4, "grey": 5}.get(
        getattr(getattr(env, "obj", None), "color", ""), 0
    )


def state_of(envs: list[Any]) -> dict[str, torch.Tensor]:
    rows = {
        "cells": [coded(env) for env in envs],
        "place": [env.agent_pos[1] * env.width + env.agent_pos[0] for env in envs],
        "direction": [env.agent_dir for env in envs],
        "goal": [goal_of(env) for env in envs],
        "carried": [0] * len(envs),
        "reached": [1] * len(envs),
        "steps": [0] * len(envs),
    }
    return {key: torch.as_tensor(np.array(row), dtype=torch.int32) for key, row in rows.items()}


@pytest.mark.parametrize("name", SMALL)
def test_steps_from_the_originals_starts(name):
    """Random actions that often go ahead, each episode from a start of the original's."""
    find_spec(name)
    number, limit = 4, {"max_steps": 60}
    envs = [gym.make(name, disable_env_checker=True, **limit) for _ in range(number)]
    generator = np.random.default_rng(0)
    world = make_tensor_world(name, number, env_kwargs=limit)
    world.reset()
    own = world.carry.state
    seeds = iter(range(1000))
    for env in envs:
        env.reset(seed=next(seeds))
    state = state_of([env.unwrapped for env in envs])
    assert {key: value.dtype for key, value in own.items()} == {
        key: value.dtype for key, value in state.items()
    }
    chances = [0.13, 0.13, 0.34, 0.15, 0.05, 0.15, 0.05]
    ends = {"terminated": 0, "truncated": 0}
    for _ in range(70):
        actions = generator.choice(7, size=number, p=chances)
        state, reward, terminated = world.transition(state, torch.as_tensor(actions))
        seen = world.observed(state)
        for i, env in enumerate(envs):
            observation, expected, ended, truncated, _ = env.step(int(actions[i]))
            assert observation.keys() == seen.keys()
            for key, value in observation.items():
                assert np.array_equal(seen[key][i], value), key
            assert reward[i].item() == pytest.approx(expected, rel=1e-6)
            assert bool(terminated[i]) == ended
            assert bool(state["steps"][i] >= world.max_episode_steps) == truncated
            ends["terminated"] += ended
            ends["truncated"] += truncated
            if ended or truncated:
                env.reset(seed=next(seeds))
                fresh = state_of([env.unwrapped])
                for key, value in state.items():
                    value[i] = fresh[key][0]
    assert sum(ends.values()) > 0


@pytest.mark.parametrize("name", SMALL)
def test_starts_are_as_likely_as_the_originals(name):
    """The content of each cell, the agent's place and its direction, by frequency."""
    find_spec(name)
    number = 300
    world = make_tensor_world(name, 4000)
    world.reset()
    own = world.carry.state
    env = gym.make(name, disable_env_checker=True)
    starts = []
    for seed in range(number):
        env.reset(seed=seed)
        starts.append(state_of([env.unwrapped]))
    theirs = {key: torch.cat([start[key] for start in starts]) for key in starts[0]}
    codes = theirs["cells"].unique().tolist()
    assert set(own["cells"].unique().tolist()) >= set(codes)
    for code in [1, *{code & 15 for code in codes}]:
        one, other = (((x["cells"] & 15) == code).float().mean(0) for x in (own, theirs))
        spread = 5 * (one * (1 - one) / number).sqrt() + 1e-2
        assert ((one - other).abs() <= spread).all(), code
    one, other = (float((x["cells"] >> 4).float().mean()) for x in (own, theirs))
    assert one == pytest.approx(other, rel=0.1)
    for key, size in (("place", world.width * world.height), ("direction", 4)):
        one, other = (torch.bincount(x[key], minlength=size) / len(x[key]) for x in (own, theirs))
        spread = 5 * (one * (1 - one) / number).sqrt() + 1e-2
        assert ((one - other).abs() <= spread).all(), key


@pytest.mark.parametrize("name", IDS)
def test_the_id_is_an_alias_of_the_original_with_its_usual_wrappers(name):
    spec = find_spec(name)
    wrapped = usual_wrappers(name.removeprefix("torch/"))
    assert wrapped is not None
    assert spec.entry_point == wrapped.train.entry_point
    assert spec.additional_wrappers == wrapped.play.additional_wrappers
    world = make_tensor_world(name, 2)
    world.reset()
    assert world.name == name
    with gym.make(name) as env, gym.make(wrapped.play) as original:
        assert world.observation_space == env.observation_space == original.observation_space
        assert world.action_space == env.action_space
        assert (world.width, world.height) == (env.unwrapped.width, env.unwrapped.height)
        assert world.max_episode_steps == original.unwrapped.max_steps
        assert vars(env.unwrapped)["max_steps"] == original.unwrapped.max_steps


class Hall(GridWorld):
    """An empty room, the goal to the right of the agent."""

    width = height = 5

    def start(self, uniform: torch.Tensor) -> Start:
        cells, _, _ = room(self, uniform)
        agent = torch.full((self.num_envs,), 6)
        return Start(placed(cells, numbered(cells, agent + 1), GOAL), agent, 0)


def test_a_grid_of_ones_own_has_a_length():
    """That of MiniGrid's grids, or that of the class as of every world; rewards depend on it."""

    class Short(Hall):
        max_episode_steps = 3

    for kind, given, length in ((Hall, {}, 100), (Short, {}, 3), (Short, {"max_steps": 9}, 9)):
        world = kind(2, **given)
        world.reset()
        outcome = world.step(torch.full((2,), FORWARD))
        assert world.max_episode_steps == length
        assert outcome.terminated.all()
        torch.testing.assert_close(outcome.reward, torch.full((2,), 1 - 0.9 / length))
    for kind in (Hall, EmptyWorld):
        with pytest.raises(ConfigError, match="max_steps=0"):
            kind(2, max_steps=0)
