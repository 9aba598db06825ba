"""SAC with each kind of critics trains, resumes exactly, saves its policy, and can be compiled."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from any_env import AnyEnv
from gymnasium import spaces
from marks import slow_except
from tensordict import TensorDict
from test_algorithms import assert_resumed_is_whole, make
from test_learning import REPLAY, SMALL, Copy
from test_spaces import BOX, OBSERVATIONS, VECTOR
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer import Trainer, algorithms
from hooktrainer.policies import load_policy

CRITICS = ["tqc", "redq", "droq", "crossq"]
SAVED = {"save_interval": 40, "log_interval": 40, "num_envs": 2, "steps_per_batch": 7}


@pytest.mark.parametrize("critics", CRITICS)
def test_a_run_that_is_resumed_is_the_whole_run(critics, tmp_path):
    options = {"critics": critics, "policy_delay": 3, "eval_interval": 84, **SAVED}
    assert_resumed_is_whole(partial(make, "sac", **options), tmp_path, 168, 98)


@pytest.mark.parametrize("critics", slow_except(CRITICS, "crossq"))
@pytest.mark.parametrize("observation", ["nested", "image"])
@pytest.mark.parametrize("options", [{}, {"memory": "gru", "memory_size": 8}])
def test_any_observation_with_and_without_a_memory(critics, observation, options):
    if options:
        options = {**options, "sequence_length": 8, "burn_in": 2}
    env = partial(AnyEnv, OBSERVATIONS[observation], BOX)
    trainer = make("sac", 96, env=env, critics=critics, critic_cells=(6,), **options)
    trainer.train()
    losses = [v for k, v in trainer.metrics.all_latest().items() if k.startswith("loss/")]
    assert len(losses) == 3
    assert torch.tensor(losses).isfinite().all()


def test_the_critics_are_what_the_fields_say():
    def shapes(**options):
        network = make("sac", **options).loss_module.qvalue_network
        return [tuple(p.shape) for p in network.parameters() if p.ndim > 1 and p.shape[-2] > 1]

    wide = {"critic_cells": (16,)}
    assert shapes(**wide) == [(16, 4), (16, 4)]
    assert shapes(critics="redq", num_critics=3, **wide)[0] == (3, 16, 4)
    assert shapes(critics="redq")[0] == (10, 8, 4)
    assert shapes(critics="tqc", num_quantiles=7)[-1] == (2, 7, 8)


def test_the_optimizer_of_crossq():
    trainer = make("sac", critics="crossq", actor_lr=1e-4, lr=1e-2)
    optimizer = trainer.optimizer
    assert [group["betas"] for group in optimizer.param_groups] == [(0.5, 0.999)] * 3
    assert [group["lr"] for group in optimizer.param_groups] == [1e-4, 1e-2, 1e-2]
    actor, critics, alpha = ([*group["params"]] for group in optimizer.param_groups)
    loss = trainer.loss_module
    assert {*actor} == {*loss.actor_network.parameters()}
    assert {*critics} == {*loss.qvalue_network.parameters()}
    assert alpha == [loss.log_alpha]
    assert loss.policy_delay == 3


def test_the_saved_policy_of_crossq_acts_as_the_live_one(tmp_path):
    trainer = make("sac", critics="crossq", run_dir=tmp_path / "run", policy_delay=1, snapshots=2)
    trainer.train()
    actor = trainer.loss_module.actor_network
    norms = [b for name, b in actor.named_buffers() if name.endswith("mean")]
    assert norms
    assert all(mean.any() for mean in norms)
    policy = load_policy(tmp_path / "run/policies/latest", trust=True)
    observation = torch.randn(5, 3)
    live = TensorDict({"observation": observation}, [5])
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        actor(live)
    torch.testing.assert_close(torch.from_numpy(policy(observation.numpy())), live["action"])
    [alone] = policy(observation[:1].numpy())  # what is seen with it makes no difference
    torch.testing.assert_close(torch.as_tensor(alone), live["action"][0])


def trained(critics: str, compile: str | None) -> Trainer:
    env = partial(AnyEnv, VECTOR, spaces.Box(-1, 1, (2,)))
    options = {"critics": critics, "policy_delay": 2, "steps_per_batch": 8, "num_envs": 4}
    trainer = make("sac", 128, env=env, compile=compile, seed=0, **options)
    trainer.train()
    return trainer


@pytest.mark.parametrize("critics", slow_except(CRITICS))
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_equal_eager_ones(critics):
    eager, compiled = trained(critics, None), trained(critics, "step")
    assert compiled.optim_count == eager.optim_count > 7
    torch.testing.assert_close(
        compiled.loss_module.state_dict(), eager.loss_module.state_dict(), rtol=0, atol=1e-5
    )


@pytest.mark.learning
@pytest.mark.parametrize("critics", slow_except(CRITICS))
def test_it_learns_to_do_what_it_sees(critics):
    options = {"critics": critics, "policy_delay": 1}  # a delay is for longer runs
    trainer = algorithms.SAC(env=Copy, **options, **SMALL, **REPLAY).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.1
