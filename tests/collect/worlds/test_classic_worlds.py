"""Worlds of our own are Gymnasium's environments, step for step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from marks import slow_except

from hooktrainer.collect.make_envs import find_spec
from hooktrainer.collect.worlds import is_world, make_tensor_world
from hooktrainer.collect.worlds.world_ids import WORLDS

IDS = [name for name, place in WORLDS.items() if place.startswith("classic_control")]
NUM_ENVS = 8


def random_actions(space: spaces.Space, generator: np.random.Generator) -> np.ndarray:
    """Actions that now and then stay the same for long, so that more than the middle is seen."""
    if isinstance(space, spaces.Discrete):
        return generator.integers(space.n, size=NUM_ENVS)
    return generator.uniform(-1.5, 1.5, (NUM_ENVS, *space.shape)).astype(np.float32) * space.high


def play(env_id: str, dtype: torch.dtype, steps: int, *, resync: bool, **kwargs) -> dict[str, int]:
    """Step world and environments alike, compare everything, and count how episodes ended."""
    find_spec(env_id)
    world = make_tensor_world(env_id, NUM_ENVS, env_kwargs={"dtype": dtype, **kwargs})
    envs = [gym.make(env_id, disable_env_checker=True, **kwargs) for _ in range(NUM_ENVS)]
    generator = np.random.default_rng(0)
    world.seed(3)
    world.reset()
    for env in envs:
        env.reset()
    ends = {"terminated": 0, "truncated": 0}
    begun, held = np.ones(NUM_ENVS, bool), random_actions(world.action_space, generator)
    for _ in range(steps):
        drawn = random_actions(world.action_space, generator)
        hold = generator.random(NUM_ENVS) < 0.9 if resync else np.zeros(NUM_ENVS, bool)
        held = np.where(hold.reshape(-1, *[1] * (drawn.ndim - 1)), held, drawn)
        before = world.carry.state.double().numpy().copy()
        outcome = world.step(torch.as_tensor(held))
        theirs = []
        for i, env in enumerate(envs):
            if begun[i] or resync:
                env.unwrapped.state = before[i]
            theirs.append(env.step(held[i])[:4])
        expected, reward, *ended = (np.array(x) for x in zip(*theirs, strict=True))
        final = outcome.final["observation"].numpy()
        np.testing.assert_allclose(final, expected, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(outcome.reward, reward, rtol=1e-5, atol=1e-5)
        for name, flags in zip(ends, ended, strict=True):
            assert np.array_equal(getattr(outcome, name), flags)
            ends[name] += int(flags.sum())
        begun = ended[0] | ended[1]
        assert np.array_equal(outcome.observation["observation"][~begun], final[~begun])
        for i in np.flatnonzero(begun):
            envs[i].reset()
    return ends


@pytest.mark.parametrize("env_id", IDS)
def test_whole_episodes_in_double_precision(env_id):
    steps = 520 if "Acrobot" in env_id else 250  # more than an episode can have
    ends = play(env_id, torch.float64, steps, resync=False)
    assert sum(ends.values()) or "Continuous" in env_id


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_each_step_from_the_same_state_in_single_precision(env_id):
    ends = play(env_id, torch.float32, 400, resync=True)
    assert sum(ends.values()) or "Continuous" in env_id


@pytest.mark.parametrize("env_id", ["torch/MountainCar-v0", "torch/MountainCarContinuous-v0"])
def test_the_goal_is_reached_where_gymnasium_reaches_it(env_id):
    """Pushing in the direction of motion climbs the hill."""
    find_spec(env_id)
    world = make_tensor_world(env_id, 2, env_kwargs={"dtype": torch.float64})
    env = gym.make(env_id)
    world.reset()
    env.reset()
    env.unwrapped.state = world.carry.state[0].numpy().copy()
    for _ in range(300):
        push = np.sign(env.unwrapped.state[1]) or 1.0
        discrete = isinstance(env.action_space, spaces.Discrete)
        action = int(push + 1) if discrete else np.array([push], np.float32)
        _, reward, terminated, *_ = env.step(action)
        outcome = world.step(torch.as_tensor(np.stack([action, action])))
        assert bool(outcome.terminated[0]) == terminated
        assert outcome.reward[0].item() == pytest.approx(reward, rel=1e-5)
        if terminated:
            return
    raise AssertionError("the goal was not reached")


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("torch/CartPole-v1", {"sutton_barto_reward": True}),
        ("torch/Pendulum-v1", {"g": 5.0}),
        ("torch/MountainCar-v0", {"goal_velocity": 0.05}),
    ],
)
def test_arguments_are_gymnasiums(env_id, kwargs):
    play(env_id, torch.float64, 220, resync=False, **kwargs)


@pytest.mark.parametrize("env_id", IDS)
def test_an_id_has_gymnasiums_spaces_and_limits(env_id):
    spec, original = find_spec(env_id), gym.spec(env_id.removeprefix("torch/"))
    assert spec.entry_point == original.entry_point
    assert spec.reward_threshold == original.reward_threshold
    world = make_tensor_world(env_id, 3)
    with gym.make(env_id) as env:
        assert (world.observation_space, world.action_space) == (
            env.observation_space,
            env.action_space,
        )
    assert world.max_episode_steps == spec.max_episode_steps == original.max_episode_steps
    assert world.name == env_id
    assert is_world(env_id)
    assert not is_world(original.id)


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_begin_where_gymnasiums_do(env_id):
    """The same box of states, filled to its edges."""
    find_spec(env_id)
    world = make_tensor_world(env_id, 2000)
    world.reset()
    own = world.carry.state.numpy()
    with gym.make(env_id) as env:
        theirs = []
        for seed in range(500):
            env.reset(seed=seed)
            theirs.append(np.array(env.unwrapped.state))
    theirs = np.stack(theirs)
    width = np.ptp(theirs, 0)
    np.testing.assert_allclose(own.min(0), theirs.min(0), atol=0.02 * width.max())
    np.testing.assert_allclose(own.max(0), theirs.max(0), atol=0.02 * width.max())
    np.testing.assert_allclose(own.mean(0), theirs.mean(0), atol=0.06 * width.max())


def some_actions(world, seed: int) -> torch.Tensor:
    return torch.as_tensor(random_actions(world.action_space, np.random.default_rng(seed)))


@pytest.mark.parametrize("env_id", IDS)
def test_a_step_is_a_pure_function(env_id):
    """The same carry and actions give the same, and neither they nor the world change."""
    world = make_tensor_world(env_id, NUM_ENVS, env_kwargs={"max_episode_steps": 3})
    world.reset()
    carry = world.carry
    for step in range(7):
        action, kept = some_actions(world, step), [x.clone() for x in carry]
        own = {key: id(value) for key, value in vars(world).items()}
        following, outcome = world.advance(carry, action)
        again, other = world.advance(carry, action)
        assert all(map(torch.equal, following, again))
        assert torch.equal(outcome.final["observation"], other.final["observation"])
        assert all(map(torch.equal, carry, kept))
        assert torch.equal(action, some_actions(world, step))
        assert own == {key: id(value) for key, value in vars(world).items()}
        carry = following
    assert carry.episode.tolist() == [2] * NUM_ENVS  # of 3 steps each
    assert carry.length.tolist() == [1] * NUM_ENVS


@pytest.mark.parametrize("env_id", slow_except(IDS, "torch/CartPole-v1"))
def test_several_steps_are_one_graph(env_id):
    world = make_tensor_world(env_id, NUM_ENVS, env_kwargs={"max_episode_steps": 2})
    world.reset()

    def several(carry, actions):
        for action in actions:
            carry, outcome = world.advance(carry, action)
        return carry, outcome

    torch._dynamo.reset()
    actions = [some_actions(world, step) for step in range(2)]
    compiled = torch.compile(several, backend="eager", fullgraph=True)
    for own, other in zip(
        several(world.carry, actions)[0], compiled(world.carry, actions)[0], strict=True
    ):
        torch.testing.assert_close(own, other)
