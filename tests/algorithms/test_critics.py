"""SAC and TD3 with each kind of critics train, resume exactly, save their policy, and compile."""

from __future__ import annotations

import itertools
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

from hooktrainer import PolicySnapshot, Trainer, algorithms
from hooktrainer.errors import ConfigError
from hooktrainer.networks import BatchRenorm, UnitLinear
from hooktrainer.policies import load_policy

OF_SAC = ["tqc", "redq", "droq", "crossq", "categorical", "xqc"]
CASES = {kind: ("sac", {"critics": kind}) for kind in OF_SAC}
CASES["fast td3"] = ("td3", {"critics": "categorical", "sigma": 0.05, "sigma_max": 0.4})
TINY = {"num_envs": 2, "steps_per_batch": 8, "optim_steps_per_batch": 3, "init_random_frames": 16}
SAVED = {"save_interval": 16, "log_interval": 16}


@pytest.mark.parametrize("case", slow_except(CASES, "redq", "xqc", "fast td3"))
def test_a_run_that_is_resumed_is_the_whole_run(case, tmp_path):
    name, options = CASES[case]
    options = {"policy_delay": 2, "eval_interval": 32, **TINY, **SAVED, **options}
    assert_resumed_is_whole(partial(make, name, **options), tmp_path, 64, 40)


# Encoders and memories are the same for all critics, so each kind has one pair of them.
PAIRS = [("nested", True), ("image", True), ("nested", False), ("image", False)]
OBSERVED = [(case, *pair) for case, pair in zip(CASES, itertools.cycle(PAIRS), strict=False)]


@pytest.mark.parametrize(("case", "observation", "memory"), slow_except(OBSERVED, 0, 5))
def test_any_observation_with_and_without_a_memory(case, observation, memory):
    name, fields = CASES[case]
    options = {"memory": "gru", "memory_size": 8, "sequence_length": 4, "burn_in": 2}
    options = options if memory else {}
    env = partial(AnyEnv, OBSERVATIONS[observation], BOX)
    options = {**TINY, "policy_delay": 1, "critic_cells": (6,), **fields, **options}
    trainer = make(name, 48, env=env, **options)
    trainer.train()
    losses = [v for k, v in trainer.metrics.all_latest().items() if k.startswith("loss/")]
    assert len(losses) == (2 if name == "td3" else 3)
    assert torch.tensor(losses).isfinite().all()


def test_the_critics_are_what_the_fields_say():
    def shapes(name="sac", **options):
        network = make(name, **options).loss_module.qvalue_network
        return [tuple(p.shape) for p in network.parameters() if p.ndim > 1 and p.shape[-2] > 1]

    wide = {"critic_cells": (16,)}
    assert shapes(**wide) == [(16, 4), (16, 4)]
    assert shapes(critics="redq", num_critics=3, **wide)[0] == (3, 16, 4)
    assert shapes(critics="redq")[0] == (10, 8, 4)
    assert shapes(critics="tqc", num_quantiles=7)[-1] == (2, 7, 8)
    assert shapes("td3", critics="categorical", num_atoms=9, **wide) == [(2, 16, 4), (2, 9, 16)]
    with pytest.raises(ConfigError, match=r"v_min=5.0 must be below v_max=5.0"):
        make("td3", critics="categorical", v_min=5.0)


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


def test_xqc_keeps_weights_at_norm_1_and_scales_rewards():
    trainer = make("sac", 48, critics="xqc", policy_delay=1, **TINY)
    loss = trainer.loss_module
    assert loss.log_alpha.exp().item() == pytest.approx(0.01)
    actor = [m for m in loss.actor_network.modules() if isinstance(m, UnitLinear)]
    critics = [m for m in loss.qvalue_network.modules() if isinstance(m, UnitLinear)]
    before = [layer.weight.clone() for layer in [*actor, *critics]]
    trainer.train()
    assert len(before) == 4
    for layer, old in zip([*actor, *critics], before, strict=True):
        assert not torch.equal(layer.weight, old)
        torch.testing.assert_close(layer.weight.norm(dim=-1), torch.ones(layer.weight.shape[:-1]))
    assert "reward_scaler" in trainer.describe()
    assert "reward_scaler" not in make("sac", critics="xqc", scale_rewards=False).describe()


def test_environments_of_td3_have_their_own_noise():
    fields = {**TINY, "num_envs": 4, "init_random_frames": 0}
    trainer = make("td3", 48, sigma=0.1, sigma_max=0.9, **fields)
    batch = next(iter(trainer.collector))
    trainer.shutdown()
    sigma = batch["next", "exploration", "sigma"].squeeze(-1)
    assert ((sigma >= 0.1) & (sigma <= 0.9)).all()
    assert (sigma == sigma[:, :1]).all()
    assert len(sigma[:, 0].unique()) == 4


@pytest.mark.parametrize("critics", slow_except(["crossq", "xqc"], "xqc"))
def test_the_saved_policy_acts_as_the_live_one(critics, tmp_path):
    trainer = make("sac", 48, critics=critics, policy_delay=1, **TINY)
    actor = trainer.loss_module.actor_network
    saved = PolicySnapshot(actor, "Pendulum-v1", tmp_path / "run", snapshots=2, episodes=0)
    saved.register(trainer)
    trainer.train()
    norms = [m.mean for m in actor.modules() if isinstance(m, BatchRenorm)]
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


# With what a graph has of its own: dropout, statistics that change, and a projection. The steps of
# the other losses equal the eager ones in tests/graphs/test_losses.py.
COMPILED = ("droq", "crossq", "categorical")


def trained(case: str, compile: str | None) -> Trainer:
    name, fields = CASES[case]
    env = partial(AnyEnv, VECTOR, spaces.Box(-1, 1, (2,)))
    options = {"policy_delay": 2, "steps_per_batch": 8, "num_envs": 4, **fields}
    trainer = make(name, 128, env=env, compile=compile, seed=0, **options)
    trainer.train()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_equal_eager_ones(case):
    eager, compiled = trained(case, None), trained(case, "step")
    assert compiled.optim_count == eager.optim_count > 7
    torch.testing.assert_close(
        compiled.loss_module.state_dict(), eager.loss_module.state_dict(), rtol=0, atol=1e-5
    )


@pytest.mark.learning
@pytest.mark.parametrize("case", slow_except(CASES))
def test_it_learns_to_do_what_it_sees(case):
    name, fields = CASES[case]
    # A delay and wide critics are for longer runs.
    options = {"policy_delay": 1, "critic_cells": (64, 64), "stop_at": -0.09, **fields}
    trainer = algorithms.get(name)(env=Copy, **options, **SMALL, **REPLAY).trainer()
    trainer.train()
    assert trainer.metrics.reported["eval/return"] > -0.1
