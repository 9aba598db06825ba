"""Several steps of a world and a policy as one graph give what they give one after the other."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from toy_worlds import Embedded, Wind

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.algorithms import PPO, TD3
from hooktrainer.graphs import compiling
from hooktrainer.networks import (
    AdditiveGaussian,
    CategoricalPolicy,
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    GRUMemory,
    MemoryTrunk,
    mlp,
)


def discrete() -> CategoricalPolicy:
    return CategoricalPolicy(Embedded(), ["place", "speed"])


def of_planes() -> CategoricalPolicy:
    return CategoricalPolicy(nn.Sequential(Planes(), nn.Linear(400, 3)))


class Planes(nn.Module):
    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        return planes.flatten(-3).float()


POLICIES = {
    "torch/CartPole-v1": lambda: CategoricalPolicy(mlp(4, 2, (8,))),
    "torch/Pendulum-v1": lambda: DiagonalGaussianPolicy(mlp(3, 1, (8,)), 1, log_std=2.0),
    "torch/MinAtar-Breakout": of_planes,
    Wind: discrete,
}


def collector(env: Any, compile: bool, steps: int = 21, **kwargs: Any) -> VectorCollector:
    torch.manual_seed(0)
    policy = kwargs.pop("policy", None) or POLICIES[env]()
    return VectorCollector(
        env,
        policy,
        num_envs=5,
        frames_per_batch=5 * steps,
        seed=3,
        compile=compile,
        clip_actions=True,
        **kwargs,
    )


def batches(collector: VectorCollector, number: int = 3) -> list[TensorDict]:
    torch.manual_seed(5)
    return [collector.collect() for _ in range(number)]


def assert_equal(some: list[TensorDict], others: list[TensorDict], exactly: bool = True) -> None:
    tolerance = {"rtol": 0.0, "atol": 0.0} if exactly else {"rtol": 1e-4, "atol": 1e-4}
    for one, other in zip(some, others, strict=True):
        assert set(one.keys(True, True)) == set(other.keys(True, True))
        for key, value in one.items(True, True):
            torch.testing.assert_close(value, other[key], msg=str(key), **tolerance)


@pytest.mark.parametrize("steps", [21, 8, 3], ids=lambda steps: f"{steps} steps")
@pytest.mark.parametrize("env", POLICIES, ids=str)
def test_batches_are_those_of_single_steps(env, steps, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    own, plain = (batches(collector(env, compile, steps)) for compile in (True, False))
    # NumPy evaluates small networks while single steps are made.
    assert_equal(own, plain, exactly=env is Wind)


def test_random_actions_come_first_and_are_the_same():
    kwargs = {"init_random_frames": 5 * 21}
    own, plain = (batches(collector(Wind, compile, **kwargs)) for compile in (True, False))
    assert_equal(own, plain)


def test_a_saved_state_goes_on_in_the_middle_of_an_episode():
    first = collector(Wind, True)
    batches(first, 2)
    state, random = first.state_dict(), torch.get_rng_state()
    expected = first.collect()
    second = collector(Wind, True)
    second.load_state_dict(state)
    torch.set_rng_state(random)
    assert_equal([second.collect()], [expected])


def test_weights_that_were_trained_are_those_that_act():
    source = collector("torch/CartPole-v1", True)
    batches(source, 1)
    with torch.no_grad():
        last = list(source.policy.network.modules())[-1]
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 1e6]))
    assert source.collect()["action"].eq(1).all()


def test_an_attribute_that_changes_counts_in_every_step(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")

    class Gusty(Wind):
        gust = 0.1

        def transition(self, state: Any, action: torch.Tensor) -> Any:
            following, reward, ends = super().transition(state, action)
            return following, reward + self.gust, ends

    def played(compile: bool) -> list[TensorDict]:
        torch.manual_seed(0)
        source = collector(Gusty, compile, policy=discrete())
        before = batches(source, 1)
        source.set_attribute("gust", 0.5)
        return before + batches(source, 2)

    assert_equal(played(True), played(False))


def test_noise_can_change_without_another_graph(monkeypatch, capsys):
    monkeypatch.setattr(compiling, "BACKEND", "eager")

    def played(compile: bool) -> list[TensorDict]:
        torch.manual_seed(0)
        policy = AdditiveGaussian(DeterministicPolicy(mlp(3, 1, (8,)), 1, -2.0, 2.0), 0.5)
        source = collector("torch/Pendulum-v1", compile, 8, policy=policy)
        before = batches(source, 1)
        policy.sigma = 0.1
        return before + batches(source, 2)

    assert_equal(played(True), played(False), exactly=False)
    assert capsys.readouterr().out.count("compiling") == 1


def test_td3_collects_in_graphs():
    fields = {"env": "torch/Pendulum-v1", "compile": "all", "total_frames": 64}
    TD3(**fields).trainer().shutdown()
    with pytest.raises(ConfigError, match=r"sigma_max=0.4 is carried from step to step: pass co"):
        TD3(**fields, sigma_max=0.4).trainer()


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
def test_inductors_steps_equal_eager_ones():
    own = batches(collector(Wind, True, 2), 4)
    assert_equal(own, batches(collector(Wind, False, 2), 4), exactly=False)


class Looks(CategoricalPolicy):
    """What it does depends on a number in its input, so that it is no graph."""

    def sample(self, *inputs: torch.Tensor) -> Any:
        return super().sample(*inputs) if inputs[0].sum().item() < 1e9 else None


def test_steps_that_cannot_be_compiled_are_logged_and_made_eagerly(monkeypatch, caplog):
    monkeypatch.setattr(compiling, "BACKEND", "eager")

    def policy() -> CategoricalPolicy:
        torch.manual_seed(0)
        return Looks(Embedded(), ["place", "speed"])

    own = batches(collector(Wind, True, policy=policy()))
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("the steps of wind cannot be compiled, and are made eagerly: ")
    assert_equal(own, batches(collector(Wind, False, policy=policy())))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"env": "CartPole-v1"}, "compile='all', but CartPole-v1 is no tensor world"),
        (
            {"env": "torch/CartPole-v1", "memory": "gru"},
            "memory='gru' is carried from step to step: pass compile='step', or memory=None",
        ),
        (
            {"env": "torch/MountainCarContinuous-v0"},  # tuned to have it
            "sde=True is carried from step to step: pass compile='step', or sde=False",
        ),
    ],
    ids=["no world", "memory", "sde"],
)
def test_what_cannot_be_is_refused(fields, message, tmp_path):
    run = PPO(**fields, compile="all", run_dir=tmp_path, total_frames=2048, progress_bar=False)
    with pytest.raises(ConfigError, match=message):
        run.train()
    assert not any(tmp_path.iterdir())


def test_a_collector_refuses_a_policy_with_a_memory():
    trunk = MemoryTrunk(nn.Identity(), GRUMemory(4, size=4))
    policy = CategoricalPolicy(mlp(4, 2), trunk.in_keys, trunk=trunk)
    with pytest.raises(ConfigError, match=r"CategoricalPolicy, to have .* to carry nothing from"):
        collector("torch/CartPole-v1", True, policy=policy).collect()
