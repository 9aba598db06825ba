"""Worlds of several learners as one: each learner's batches are what they are beside any others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from toy_worlds import Embedded, Ladder, Talker, Wind

from hooktrainer.collect.worlds import FunctionalWorld, WorldCollector, worlds_together
from hooktrainer.collect.worlds.cartpole import CartPoleWorld
from hooktrainer.graphs import compiling
from hooktrainer.loop.control import Control
from hooktrainer.loop.lockstep import Lockstep
from hooktrainer.networks import CategoricalPolicy, DiagonalGaussianPolicy, TanhGaussianPolicy, mlp

POLICIES = {
    "torch/CartPole-v1": lambda: CategoricalPolicy(mlp(4, 2, (13, 5), nn.SiLU)),
    "torch/Acrobot-v1": lambda: CategoricalPolicy(mlp(6, 3, (64,))),
    "torch/MountainCar-v0": lambda: CategoricalPolicy(mlp(2, 3, (7,), nn.ReLU)),
    "torch/Pendulum-v1": lambda: DiagonalGaussianPolicy(mlp(3, 1, (13, 5), nn.GELU), 1),
    "torch/MountainCarContinuous-v0": lambda: TanhGaussianPolicy(mlp(2, 2, (16,), nn.ELU), 1),
}


class Player:
    """A loop that does nothing but collect some batches.

    Args:
        seed: Of its environments, its policy and what that draws.
        env: What is played.
        batches: How many are collected.
        saved: What to go on from, as `save` returned it.
    """

    def __init__(self, seed: int, env: Any, batches: int = 3, saved: Any = None, **kwargs: Any):
        torch.manual_seed(seed)
        policy = kwargs.pop("policy", None) or POLICIES.get(env, POLICIES["torch/CartPole-v1"])()
        size = {"num_envs": 3, "steps": 11} | kwargs
        frames = size["num_envs"] * size.pop("steps")
        self.source = WorldCollector(env, policy, seed=seed, frames_per_batch=frames, **size)
        self.control = Control()
        self.has_ended, self.grace, self.threads, self.loss_module = False, 5.0, 1, None
        self.registry = SimpleNamespace(hooks=lambda: [])
        self.bridge = SimpleNamespace(only_cleans_up=lambda handler: False)
        self.batches, self.number = [], batches
        if saved is not None:
            self.source.load_state_dict(saved[0])
            torch.set_rng_state(saved[1])

    def run(self) -> None:
        self.batches += [self.source.collect() for _ in range(self.number)]
        self.saved = self.source.state_dict(), torch.get_rng_state()


def play(players: Any) -> tuple[list[Player], list[str]]:
    said: list[str] = []
    group = Lockstep(players, say=said.append)
    errors = group.run()
    assert errors == [None] * len(errors), errors
    return [member.loop for member in group.members], said


def played(seeds: Any, env: Any, **kwargs: Any) -> list[list[TensorDict]]:
    players, said = play(Player(seed, env, **kwargs) for seed in seeds)
    assert [line for line in said if "by itself" in line] == []
    return [player.batches for player in players]


def assert_same(some: list[TensorDict], others: list[TensorDict]) -> None:
    for one, other in zip(some, others, strict=True):
        assert set(one.keys(True, True)) == set(other.keys(True, True))
        for key, value in one.items(True, True):
            assert torch.equal(value, other[key]), key


def assert_close(some: list[TensorDict], others: list[TensorDict]) -> None:
    for one, other in zip(some, others, strict=True):
        assert set(one.keys(True, True)) == set(other.keys(True, True))
        for key, value in one.items(True, True):
            torch.testing.assert_close(value, other[key], rtol=1e-3, atol=1e-3, msg=str(key))


@pytest.mark.parametrize(("num_envs", "steps"), [(3, 11), (1, 21), (5, 3), (33, 1)])
@pytest.mark.parametrize("env", POLICIES)
def test_a_learners_batches_do_not_depend_on_the_others(env, num_envs, steps):
    size = {"num_envs": num_envs, "steps": steps}
    many = played(range(7), env, **size)
    assert not torch.equal(many[0][0]["observation"], many[1][0]["observation"])
    for seeds in ([4], [5, 2], [6, 4, 0]):
        for seed, batches in zip(seeds, played(seeds, env, **size), strict=True):
            assert_same(batches, many[seed])


@pytest.mark.parametrize("env", POLICIES)
def test_they_are_those_that_it_collects_alone_but_for_rounding(env):
    (_, together) = played([0, 1], env)
    alone = Player(1, env)
    alone.run()
    assert_close(together, alone.batches)


def test_all_step_as_one_larger_world(monkeypatch):
    sizes = []
    advance = CartPoleWorld.advance

    def noted(self, carry, action):
        sizes.append(len(action))
        return advance(self, carry, action)

    monkeypatch.setattr(FunctionalWorld, "advance", noted)
    played(range(6), "torch/CartPole-v1", batches=1)
    assert sizes == [(6 + 11) * 3] * 11  # six learners, and the first one again in 32 or more rows


def test_those_who_have_ended_cost_nothing_and_change_nothing(monkeypatch):
    rows = []
    made = worlds_together.LargerWorld.__init__

    def noted(self, pattern, number, say):
        rows.append(number)
        made(self, pattern, number, say)

    monkeypatch.setattr(worlds_together.LargerWorld, "__init__", noted)
    env = "torch/Pendulum-v1"
    whole = played([0, 1, 2], env, batches=4)
    ended, _ = play(Player(seed, env, batches=1 + seed) for seed in (0, 1, 2, 3))
    for player, batches in zip(ended, whole, strict=False):
        assert_same(player.batches, batches[: player.number])
    assert rows == [14, 15, 14, 13, 12]


@pytest.mark.parametrize("env", ["torch/CartPole-v1", "torch/Pendulum-v1"])
def test_one_goes_on_where_it_stood_beside_others_than_before(env):
    whole = played([0, 1, 2], env, batches=4)
    before, _ = play(Player(seed, env, batches=2) for seed in (0, 1, 2))
    saved = before[1].saved
    after, _ = play(Player(s, env, 2, own) for s, own in ((1, saved), (7, None)))
    assert_same(before[1].batches + after[0].batches, whole[1])
    assert_same(after[1].batches, played([7], env, batches=2)[0])


def test_random_actions_come_first():
    warm = {"init_random_frames": 3 * 11}
    together = played([0, 1], "torch/CartPole-v1", **warm)
    alone = Player(1, "torch/CartPole-v1", **warm)
    alone.run()
    assert_same(together[1][:1], alone.batches[:1])
    assert_close(together[1], alone.batches)
    assert_same(played([1], "torch/CartPole-v1", **warm)[0], together[1])


def test_a_batch_lies_in_memory_of_its_own_and_stays_as_it_is():
    (first, second), _ = play(Player(seed, "torch/CartPole-v1", batches=1) for seed in (0, 1))
    for batch in (first.batches[0], second.batches[0]):
        for key, value in batch.items(True, True):
            assert value.untyped_storage().nbytes() == value.numel() * value.itemsize, key
            assert value.data_ptr() % 64 == 0, key


def test_worlds_of_other_parameters_are_another_world():
    def players(seeds):
        for seed in seeds:
            yield Player(seed, "torch/Pendulum-v1", env_kwargs={"g": 10.0 - 5.0 * (seed % 2)})

    (heavy, light, other), said = play(players([0, 1, 2]))
    for one in (heavy, light, other):
        ((alone,), _) = play(players([one.source.seed]))
        assert_same(one.batches, alone.batches)
    assert said == []


def test_what_is_set_in_one_of_them_is_set_in_that_one_alone():
    class Setting(Player):
        def run(self):
            self.batches.append(self.source.collect())
            self.source.set_attribute("max_episode_steps", 2)
            super().run()

    policies = [CategoricalPolicy(mlp(1, 2)) for _ in range(2)]
    players, said = play(
        [Setting(0, Ladder, 2, policy=policies[0]), Player(1, Ladder, 3, policy=policies[1])]
    )
    assert said == []
    assert players[0].batches[1]["next", "step_count"].max() == 2
    assert players[1].batches[1]["next", "step_count"].max() == 4


class Stepping(CartPoleWorld):
    """Steps in a way of its own."""

    def step(self, actions: torch.Tensor) -> Any:
        return super().step(actions)


class Massive(CartPoleWorld):
    """Keeps a number for each environment."""

    def __init__(self, num_envs: int, **rest: Any) -> None:
        super().__init__(num_envs, **rest)
        self.mass = torch.rand(num_envs)


class Wild(CategoricalPolicy):
    """Acts in a way of its own."""

    def sample(self, *inputs: torch.Tensor) -> Any:
        return super().sample(*inputs)


class Normed(nn.Module):
    """A network with a layer whose kernel computes several learners otherwise than one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize(
    ("env", "policy", "why"),
    [
        (Stepping, CategoricalPolicy(mlp(4, 2)), "Stepping steps in a way of its own"),
        (Massive, CategoricalPolicy(mlp(4, 2)), "its mass may be numbers of each environment"),
        ("torch/CartPole-v1", Wild(mlp(4, 2)), "Wild acts in a way of its own"),
        ("torch/CartPole-v1", CategoricalPolicy(Normed()), "a LayerNorm has no kernel whose bits"),
        (
            "torch/CartPole-v1",
            lambda observation: torch.zeros(3, dtype=torch.int64),
            "the policy is a function, and those that are asked together are Policy",
        ),
    ],
    ids=["steps", "numbers", "acts", "kernels", "function"],
)
def test_what_cannot_be_one_is_stepped_by_each_and_said(env, policy, why):
    players, said = play(Player(seed, env, policy=policy) for seed in (0, 1))
    assert len(said) == 1
    assert said[0].startswith(f"each seed steps {players[0].source.world.name} by itself, since ")
    assert why in said[0]
    (alone,), _ = play(Player(seed, env, policy=policy) for seed in (0,))
    assert_same(players[0].batches, alone.batches)


def test_masks_are_kept_to():
    class Silent(Talker):
        """Says nothing, and so is a world like others."""

        step = FunctionalWorld.step

    def policy():
        return CategoricalPolicy(mlp(1, 3), ["last"], action_mask_key="action_mask")

    players, said = play(Player(seed, Silent, policy=policy()) for seed in (0, 1))
    assert said == []
    assert set(players[1].batches[0]["action"].unique().tolist()) == {0, 2}


def wind(seeds: Any, **kwargs: Any) -> list[list[TensorDict]]:
    def player(seed: int) -> Player:
        torch.manual_seed(seed)
        policy = CategoricalPolicy(Embedded(), ["place", "speed"])
        return Player(seed, Wind, policy=policy, **kwargs)

    players, said = play(player(seed) for seed in seeds)
    assert [line for line in said if "by itself" in line] == []
    return [player.batches for player in players]


@pytest.mark.parametrize("compile", [False, True])
def test_states_and_observations_may_have_several_entries(compile, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", None)
    many = wind([0, 1, 2], compile=compile)
    assert_same(wind([1], compile=compile)[0], many[1])
    assert_close(many[1], wind([1, 0], compile=not compile)[0])


@pytest.mark.parametrize("env", ["torch/CartPole-v1", "torch/Pendulum-v1"])
def test_the_steps_of_all_are_one_graph(env, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    players, said = play(Player(seed, env, steps=4, compile=True) for seed in (0, 1))
    assert [line for line in said if line.startswith("compiling")] == [
        "compiling 4 steps of the world ...",
        "compiling the batch of a rollout ...",
    ]
    (alone,) = played([1], env, steps=4)
    assert_close(players[1].batches, alone)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["torch/CartPole-v1", "torch/Pendulum-v1"])
def test_inductors_graphs_do_not_depend_on_the_others_either(env):
    size = {"steps": 4, "compile": True}
    (_, one), (alone,) = played([0, 1], env, **size), played([1], env, **size)
    assert_same(one, alone)
