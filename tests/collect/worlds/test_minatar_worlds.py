"""The games of MinAtar as tensors are those of the package, step for step."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from marks import slow_except

from hooktrainer.algorithms import DQN
from hooktrainer.collect.make_envs import find_spec
from hooktrainer.collect.random_streams import uniforms
from hooktrainer.collect.worlds import make_tensor_world

GAMES = {
    "torch/MinAtar-Breakout": "MinAtar/Breakout-v1",
    "torch/MinAtar-Asterix": "MinAtar/Asterix-v1",
    "torch/MinAtar-Freeway": "MinAtar/Freeway-v1",
    "torch/MinAtar-Seaquest": "MinAtar/Seaquest-v1",
    "torch/MinAtar-SpaceInvaders": "MinAtar/SpaceInvaders-v1",
}
NUM_ENVS = 6


class Given:
    """In place of NumPy's generator: numbers that are given by what function draws them.

    ``rand`` returns them, and ``randint`` the integers that they stand for.
    """

    def __init__(self) -> None:
        self.left: dict[str, list[float]] = {}

    def _next(self) -> float:
        return self.left[sys._getframe(2).f_code.co_name].pop(0)

    def rand(self, number: int | None = None) -> Any:
        if number is None:
            return self._next()
        # Freeway's directions: the halves of a number's range.
        return np.array([0.25 + 0.5 * (u >= 0.5) for u in self.left["cars"]])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        if size is not None:  # Freeway's speeds: 5 to 1 to the left, 1 to 5 to the right
            numbers = [int(10 * u) for u in self.left["cars"]]
            return np.array([5 - n if n < 5 else n - 4 for n in numbers])
        low, high = (0, low) if high is None else (low, high)
        return low + int((high - low) * self._next())


def numbers_of(name: str, start: Any, drawn: Any) -> dict[str, list[float]]:
    """The random numbers of a reset or a step, by the function of the original that draws them."""
    drawn = list(drawn)
    return {
        "act": drawn[:1],
        "cars": list(start) if start is not None else drawn[1:],
        "reset": [] if start is None else list(start),
        "_spawn_entity": drawn[1:4],
        "_spawn_enemy": drawn[1:4],
        "_spawn_diver": drawn[4:6],
    }


class Original:
    """A game of the package, with the random decisions that it is given."""

    def __init__(self, name: str, env: gym.Env) -> None:
        self.name, self.env = name, env
        self.game = env.unwrapped.game
        self.given = self.game.random = self.game.env.random = Given()

    def reset(self, start: list[float], drawn: list[float]) -> np.ndarray:
        """Begin an episode with the random numbers of its start and of its first step."""
        self.given.left = numbers_of(self.name, start, drawn)
        self.game.last_action = 0
        return self.env.reset()[0]

    def prepare(self, drawn: list[float]) -> None:
        """Take the random decisions of the next step, before it is made."""
        self.given.left = numbers_of(self.name, None, drawn)


def decisions(world: Any) -> tuple[list[list[float]], list[list[float]]]:
    """The random numbers of every environment's running episode: of its start, of its next step."""
    keys, carry, size = world.keys, world.carry, world.num_uniforms
    place = (carry.episode << 32) + carry.length
    start = uniforms(keys[:, :size], carry.episode)
    return start.tolist(), uniforms(keys[:, size:], place).tolist()


def play(name: str, steps: int, policy: Any = None, start: Any = None, **kwargs: Any) -> Any:
    """Step world and original alike, compare everything, and return rewards and ends."""
    world = make_tensor_world(name, NUM_ENVS, env_kwargs=kwargs)
    find_spec(name)
    envs = [gym.make(name, disable_env_checker=True, **kwargs) for _ in range(NUM_ENVS)]
    originals = [Original(name, env) for env in envs]
    generator = np.random.default_rng(0)
    world.seed(5)
    observation = world.reset()["observation"]
    seen = [x.reset(*both) for x, *both in zip(originals, *decisions(world), strict=True)]
    assert np.array_equal(observation, np.stack(seen))
    if start is not None:
        start(world, [original.game.env for original in originals])
    total, ends = 0, 0
    for _ in range(steps):
        actions = generator.integers(world.action_space.n, size=NUM_ENVS)
        if policy is not None:
            actions = policy(originals, actions, generator)
        for original, drawn in zip(originals, decisions(world)[1], strict=True):
            original.prepare(drawn)
        outcome = world.step(torch.as_tensor(actions))
        steps_of = [env.step(int(action)) for env, action in zip(envs, actions, strict=True)]
        expected, rewards, terminated = (np.array(x) for x in list(zip(*steps_of, strict=True))[:3])
        assert np.array_equal(outcome.final["observation"], expected)
        assert np.array_equal(outcome.reward, rewards)
        assert np.array_equal(outcome.terminated, terminated)
        total, ends = total + rewards.sum(), ends + terminated.sum()
        if terminated.any():
            starts, drawn = decisions(world)
            for i in np.flatnonzero(terminated):
                expected[i] = originals[i].reset(starts[i], drawn[i])
        assert np.array_equal(outcome.observation["observation"], expected)
    return total, ends


def shortly_before_the_end(world: Any, games: list[Any]) -> None:
    """Of Freeway, whose episodes have 2,500 steps."""
    assert {2500} == {*world.carry.state["time"].tolist(), *(g.terminate_timer for g in games)}
    both(world, games, {"time": ("terminate_timer", 150)})


def upward(originals: list[Original], actions: np.ndarray, generator: Any) -> np.ndarray:
    return np.where(generator.random(NUM_ENVS) < 0.5, 1, actions)


@pytest.mark.parametrize("name", GAMES)
def test_random_play(name):
    how = (upward, shortly_before_the_end) if "Freeway" in name else ()
    total, ends = play(name, 200, *how)
    assert total > 0
    assert ends > 0


@pytest.mark.parametrize("name", GAMES)
def test_all_actions_and_no_ramping(name):
    play(name, 60, use_minimal_action_set=False, difficulty_ramping=False, sticky_action_prob=0.3)


def both(world: Any, games: list[Any], values: dict[str, tuple[str, int]]) -> None:
    """Set numbers of a state by name, in the world and by their names in the original."""
    for name, (theirs, value) in values.items():
        world.carry.state[name].fill_(value)
        for game in games:
            setattr(game, theirs, value)


FASTEST = {"spawn_speed": ("e_spawn_speed", 1), "move_speed": ("move_speed", 2)}


def test_seaquest_with_as_many_enemies_as_there_can_be():
    """At the surface nothing hits the player, who shoots and moves to the sides."""
    most = 0

    def start(world: Any, games: list[Any]) -> None:
        both(world, games, {**FASTEST, "spawn_timer": ("e_spawn_timer", 0)})

    def stay(originals: list[Original], actions: np.ndarray, generator: Any) -> np.ndarray:
        nonlocal most
        game = originals[0].game.env
        most = max(most, len(game.e_fish) + len(game.e_subs))
        return generator.choice([0, 1, 3, 5], NUM_ENVS)

    play("torch/MinAtar-Seaquest", 120, stay, start, sticky_action_prob=0.0)
    assert most > 10


def test_seaquest_surfacing_with_divers():
    def start(world: Any, games: list[Any]) -> None:
        both(world, games, {"y": ("sub_y", 3), "divers": ("diver_count", 6)})
        both(world, games, {"oxygen": ("oxygen", 150), "spawn_timer": ("e_spawn_timer", 500)})
        both(world, games, {"at_surface": ("surface", False)})

    def up_and_down(originals: list[Original], actions: np.ndarray, generator: Any) -> np.ndarray:
        return np.where(generator.random(NUM_ENVS) < 0.5, generator.choice([2, 4]), actions)

    total, _ = play("torch/MinAtar-Seaquest", 200, up_and_down, start)
    assert total >= 14


def test_asterix_at_its_fastest():
    def start(world: Any, games: list[Any]) -> None:
        both(world, games, {"spawn_speed": ("spawn_speed", 2), "move_speed": ("move_speed", 2)})
        both(world, games, {"ramp_timer": ("ramp_timer", 5), "ramps": ("ramp_index", 9)})

    play("torch/MinAtar-Asterix", 200, None, start)


def test_space_invaders_in_later_waves():
    def start(world: Any, games: list[Any]) -> None:
        world.carry.state["aliens"][:, 1:] = False
        for game in games:
            game.alien_map[1:] = 0
        both(world, games, {"move_interval": ("enemy_move_interval", 7)})

    waves = 0

    def aim(originals: list[Original], actions: np.ndarray, generator: Any) -> np.ndarray:
        nonlocal waves
        waves = max(waves, *(original.game.env.ramp_index for original in originals))
        return np.where(generator.random(NUM_ENVS) < 0.5, 3, actions)

    play("torch/MinAtar-SpaceInvaders", 400, aim, start)
    assert waves > 0


@pytest.mark.parametrize("name", GAMES)
def test_the_id_is_an_alias_of_the_original_with_its_usual_wrapper(name):
    spec = find_spec(name)
    find_spec(GAMES[name])
    original = gym.spec(GAMES[name])
    assert (spec.entry_point, spec.kwargs) == (original.entry_point, original.kwargs)
    assert [wrapper.name for wrapper in spec.additional_wrappers] == ["FirstAction"]
    world = make_tensor_world(name, 2)
    assert world.name == name
    with gym.make(name) as env:
        assert world.observation_space == env.observation_space
        assert world.action_space == env.action_space
    assert DQN.tuned_settings_for(name) == DQN.tuned_settings_for(GAMES[name]) != {}


@pytest.mark.parametrize("name", GAMES)
def test_the_random_decisions_of_a_step_are_those_of_environment_episode_and_step(name):
    whole, share = make_tensor_world(name, 6), make_tensor_world(name, 3, first_env=3)
    for world in (whole, share):
        world.reset()
    moved = torch.ones(6, dtype=torch.int64)
    for _ in range(20):
        outcomes = whole.step(moved), share.step(moved[:3])
        one, other = (outcome.final["observation"] for outcome in outcomes)
        assert torch.equal(one[3:], other)
    state = whole.state_dict()
    expected = [whole.step(moved).final["observation"] for _ in range(20)]
    again = make_tensor_world(name, 6)
    assert again.load_state_dict(state)
    for observation in expected:
        assert torch.equal(again.step(moved).final["observation"], observation)


@pytest.mark.parametrize("name", slow_except(GAMES, "torch/MinAtar-Asterix"))
def test_a_step_is_one_graph_without_a_look_at_a_number(name):
    world = make_tensor_world(name, 2)
    world.reset()
    torch._dynamo.reset()
    action = torch.ones(2, dtype=torch.int64)
    carry, outcome = world.advance(world.carry, action)
    compiled = torch.compile(world.advance, backend="eager", fullgraph=True)
    own, other = compiled(world.carry, action)
    assert torch.equal(other.final["observation"], outcome.final["observation"])
    for key, value in carry.state.items():
        assert torch.equal(own.state[key], value)
    with torch.device("meta"):
        make_tensor_world(name, 2, device="meta").reset()
