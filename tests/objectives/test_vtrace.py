"""V-trace: numbers worked out by hand, TorchRL's on random data, and GAE's on the policy."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.objectives.value.functional import vtrace_advantage_estimate

from hooktrainer.algorithms import A2C
from hooktrainer.errors import ConfigError
from hooktrainer.hooks import ValueEstimatorHook
from hooktrainer.networks import CategoricalPolicy, GRUMemory, MemoryTrunk, ValueNetwork, mlp
from hooktrainer.objectives import GAE, VTrace, generalized_advantage_estimate, vtrace_estimate


def column(*values):
    return torch.tensor(values).unsqueeze(-1)


def test_by_hand():
    # gamma 0.5, ratios 2 (clipped to 1), 0.5, 1; the episode is truncated after the last step.
    advantage, target = vtrace_estimate(
        0.5,
        1.0,
        state_value=column(1.0, 2.0, 3.0),
        next_state_value=column(2.0, 3.0, 4.0),
        reward=column(1.0, 1.0, 1.0),
        done=column(False, False, True),
        terminated=column(False, False, False),
        log_ratio=column(2.0, 0.5, 1.0).log(),
    )
    # deltas: 1+1-1=1, (1+1.5-2)/2=0.25, 1+2-3=0. v-V: 1+0.5*0.25=1.125, 0.25+0.5*0.5*0=0.25, 0
    assert target.squeeze(-1).tolist() == [2.125, 2.25, 3.0]
    assert advantage.squeeze(-1).tolist() == [1 + 1.125 - 1, 1 + 1.5 - 2, 1 + 2 - 3]


def rollout(*batch, behind=0.5):
    """A rollout of a policy whose log-probabilities differ from the recorded ones."""
    states = torch.randn(*batch[:-1], batch[-1] + 1, 4)
    done = torch.rand(*batch, 1) < 0.2
    following = states[..., 1:, :].clone()
    following[done.squeeze(-1)] = torch.randn(int(done.sum()), 4)
    actor, critic = CategoricalPolicy(mlp(4, 3)), ValueNetwork(mlp(4, 1))
    action = torch.randint(3, batch)
    log_prob = actor.log_prob_and_entropy([states[..., :-1, :]], action)[0].detach()
    data = TensorDict(
        observation=states[..., :-1, :],
        action=action,
        action_log_prob=log_prob + behind * torch.randn(batch),
        next=TensorDict(
            observation=following,
            reward=torch.randn(*batch, 1),
            done=done,
            terminated=done & (torch.rand(*batch, 1) < 0.5),
            batch_size=batch,
        ),
        batch_size=batch,
    )
    return data, actor, critic, log_prob.unsqueeze(-1)


@pytest.mark.parametrize("batch", [(1, 2), (3, 1), (4, 32), (5,), (2, 3, 8)])
def test_equals_torchrls(batch):
    data, actor, critic, log_prob = rollout(*batch)
    vtrace = VTrace(
        gamma=0.9,
        value_network=critic,
        actor_network=actor,
        rho_clip=1.5,
        c_clip=0.8,
        weighted=True,
    )
    assert set(vtrace.in_keys) >= {"action", "action_log_prob", "observation"}
    ours = vtrace(data.clone())
    following = data["next"]
    advantage, target = vtrace_advantage_estimate(
        0.9,
        log_prob,
        data["action_log_prob"].unsqueeze(-1),
        ours["state_value"],
        ours["next", "state_value"],
        *(following[key] for key in ("reward", "done", "terminated")),
        rho_thresh=1.5,
        c_thresh=0.8,
    )
    torch.testing.assert_close(ours["value_target"], target, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours["advantage"], advantage, atol=1e-5, rtol=1e-5)
    vtrace.weighted = False
    ratio = (log_prob - data["action_log_prob"].unsqueeze(-1)).exp().clamp_max(1.5)
    torch.testing.assert_close(
        vtrace(data.clone())["advantage"] * ratio, advantage, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("lmbda", [1.0, 0.7])
def test_on_the_policy_targets_are_those_of_gae(lmbda):
    data, actor, critic, _ = rollout(4, 16, behind=0.0)
    both = {"gamma": 0.9, "lmbda": lmbda, "value_network": critic}
    ours = VTrace(**both, actor_network=actor)(data.clone())
    gae = GAE(**both)(data.clone())
    torch.testing.assert_close(ours["value_target"], gae["value_target"], atol=1e-5, rtol=1e-5)
    if lmbda == 1.0:  # n-step returns, and their advantages
        torch.testing.assert_close(ours["advantage"], gae["advantage"], atol=1e-5, rtol=1e-5)


def test_on_the_policy_targets_are_n_step_returns():
    reward, value = column(1.0, 2.0, 3.0), column(5.0, 6.0, 7.0)
    following, ends = column(6.0, 7.0, 8.0), torch.zeros(3, 1, dtype=torch.bool)
    _, target = vtrace_estimate(0.5, 1.0, value, following, reward, ends, ends, torch.zeros(3, 1))
    assert target.squeeze(-1).tolist() == [1 + 1 + 0.75 + 1, 2 + 1.5 + 2, 3 + 4]


def test_the_value_of_a_terminal_observation_does_not_matter():
    value, reward, done = column(1.0, 2.0), column(1.0, 1.0), column(False, True)
    following, ratio = column(2.0, float("nan")), torch.zeros(2, 1)
    ours = vtrace_estimate(0.5, 0.5, value, following, reward, done, done, ratio)
    _, target = generalized_advantage_estimate(0.5, 0.5, value, following, reward, done)
    assert ours[1].tolist() == target.tolist()


def test_a_policy_with_a_memory_is_evaluated_step_by_step():
    trunk = MemoryTrunk(mlp(4, 8), GRUMemory(8, 8), ["observation"])
    actor = CategoricalPolicy(mlp(8, 3), trunk.in_keys, trunk=trunk)
    critic = ValueNetwork(mlp(8, 1), trunk.in_keys, trunk=trunk)
    data, *_ = rollout(2, 5)
    hidden = {key: torch.randn(2, 5, 8) for key in trunk.hidden_keys}
    for part in (data, data["next"]):
        for key, state in hidden.items():
            part.set(key, state)
        part.set("is_init", torch.zeros(2, 5, 1, dtype=torch.bool))
    parameters, _ = actor.remember(*(data[key].flatten(0, 1) for key in actor.in_keys))
    chosen = actor.distribution.log_prob_and_entropy(parameters, data["action"].flatten())[0]
    data["action_log_prob"] = chosen.detach().view(2, 5)
    both = {"gamma": 0.9, "lmbda": 1.0, "value_network": critic}
    ours, gae = VTrace(**both, actor_network=actor)(data.clone()), GAE(**both)(data.clone())
    torch.testing.assert_close(ours["value_target"], gae["value_target"], atol=1e-5, rtol=1e-5)


def test_bad_arguments_are_refused():
    actor, critic = CategoricalPolicy(mlp(4, 3)), ValueNetwork(mlp(4, 1))
    with pytest.raises(ConfigError, match="c_clip"):
        VTrace(gamma=0.9, value_network=critic, actor_network=actor, c_clip=0.0)
    vtrace = VTrace(gamma=0.9, value_network=critic, actor_network=actor)
    with pytest.raises(KeyError, match="action_log_prob"):
        vtrace(rollout(2, 3)[0].exclude("action_log_prob"))


@pytest.mark.parametrize("options", [{}, {"memory": "gru"}])
def test_is_a_field_of_on_policy_algorithms(options):
    make = {"env": "CartPole-v1", "total_frames": 64, "num_envs": 2, "steps_per_batch": 16}
    trainer = A2C(**make, value_estimator="vtrace", **options).trainer()
    hook = next(h for h in trainer.registry.hooks() if isinstance(h, ValueEstimatorHook))
    assert isinstance(hook.value_estimator, VTrace)
    trainer.train()
    with pytest.raises(ConfigError, match="value_estimator"):
        A2C(**make, value_estimator="v_trace").trainer()
