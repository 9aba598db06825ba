"""Algorithms with a memory learn on sequences what they did step by step, and resume exactly."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from marks import slow_except
from remembering import Recall, assert_saved_acts_as_live, collect, make
from test_algorithms import assert_resumed_is_whole

from hooktrainer import ConfigError
from hooktrainer.hooks import SequenceReplay
from hooktrainer.networks import MEMORIES
from hooktrainer.objectives import GAE
from hooktrainer.replay import ReplayBuffer

ON_POLICY = ["ppo", "a2c", "reinforce", "trpo"]
OFF_POLICY = ["dqn", "sac", "td3", "ddpg", "dsac"]


def policy_of(trainer: Any) -> Any:
    loss = trainer.loss_module
    return loss.actor_network if hasattr(loss, "actor_network") else loss.value_network


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", ON_POLICY)
def test_acting_and_learning_agree(name, memory, masked):
    trainer = make(name, memory, masked=masked)
    batch = collect(trainer)
    loss = trainer.loss_module
    policy, value = loss.actor_network, loss.critic_network
    assert ("action_mask" in policy.in_keys) is masked
    log_prob, _ = policy.log_prob_and_entropy(policy.inputs(batch), batch["action"])
    torch.testing.assert_close(log_prob, batch["action_log_prob"])

    # GAE values every step by the hidden state that is stored with it.
    estimated = GAE(gamma=0.9, lmbda=0.9, value_network=value)(batch.clone())
    over = value.evaluate(*[batch[key] for key in value.in_keys])
    torch.testing.assert_close(estimated["state_value"], over)
    # Of what follows: the value one step later, unless another episode begins there.
    begins = batch["is_init"][:, 1:]
    torch.testing.assert_close(
        estimated["next", "state_value"][:, :-1][~begins], over[:, 1:][~begins]
    )
    assert (estimated["next", "state_value"][:, :-1][begins] != over[:, 1:][begins]).any()


# Each memory on and off policy, and each algorithm with one of them.
RESUMED = [
    *[("ppo", "gru"), ("a2c", "transformer"), ("dqn", "lstm"), ("sac", "gru")],
    *[("trpo", "lstm"), ("td3", "transformer"), ("ddpg", "lstm"), ("dsac", "gru"), ("pqn", "gru")],
]


@pytest.mark.parametrize(("name", "memory"), slow_except(RESUMED, *range(4)))
def test_a_run_that_is_resumed_within_episodes_is_the_whole_run(name, memory, tmp_path):
    steps = {"steps_per_batch": 7} if name in OFF_POLICY else {}
    run = partial(make, name, memory, save_interval=80, log_interval=80, **steps)
    first = run(total_frames=84)
    first.train()
    policy = first.collector.state_dict()["rollout"]["policy"]
    assert not policy["is_init"].all()  # episodes are running
    assert all(value.any() for _, value in policy["hidden"])
    assert_resumed_is_whole(run, tmp_path, 224 if steps else 240, 112 if steps else 160)


# Each memory with and without a mask, and each algorithm with one of them.
PLAYED = [
    ("ppo", "gru", False),
    ("sac", "lstm", False),
    ("dqn", "transformer", True),
    ("a2c", "transformer", False),
    ("reinforce", "gru", True),
    ("trpo", "lstm", True),
    ("td3", "gru", False),
    ("ddpg", "transformer", False),
    ("dsac", "lstm", True),
    ("pqn", "gru", True),
]


@pytest.mark.parametrize(("name", "memory", "masked"), slow_except(PLAYED, 0, 1, 2))
def test_the_saved_policy_acts_as_the_live_one(name, memory, masked, tmp_path):
    trainer = make(name, memory, masked=masked)
    trainer.train()
    live, continuous = policy_of(trainer), name in ("sac", "td3", "ddpg")
    hidden = dict(zip(live.trunk.hidden_keys, live.trunk.memory.hidden.values(), strict=True))
    assert_saved_acts_as_live(live, hidden, partial(Recall, continuous, masked), tmp_path)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("name", "masked"), [("dqn", True), *((each, False) for each in OFF_POLICY)]
)
def test_replayed_sequences_are_what_was_played(name, memory, masked):
    trainer = make(name, memory, masked=masked, steps_per_batch=9)
    loss = trainer.loss_module
    policy = policy_of(trainer)
    batch = collect(trainer)
    inputs = [batch[key] for key in policy.in_keys]
    flat = [value.flatten(0, 1) for value in inputs]
    by_step = policy.evaluate(*flat).unflatten(0, batch.shape)  # each from its stored state
    torch.testing.assert_close(policy.evaluate(*inputs), by_step)

    replay = SequenceReplay(
        ReplayBuffer(100, keys=loss.in_keys), 8, overlap=3, hidden_keys=loss.hidden_keys
    )
    replay.extend(batch)
    rows = replay.replay_buffer.state_dict()["storage"]
    assert len(rows) == 4
    torch.testing.assert_close(
        policy.evaluate(*[rows[key] for key in policy.in_keys]), by_step[:, :8]
    )


def test_a_small_mini_batch_is_a_sequence_by_default():
    trainer = make("ppo", sequence_length=None, steps_per_batch=20, mini_batch_size=10)
    assert trainer.registry.modules["mini_batches"].sequences == 10
    trainer.train()
    assert trainer.optim_count == 2 * 160 // 10  # num_epochs of all frames


def test_sequences_have_priorities():
    trainer = make("dqn", prioritized=True)
    trainer.train()
    buffer = trainer.registry.modules["replay_buffer"].replay_buffer
    assert len(buffer.sampler.state_dict()["weights"].unique()) > 5


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("ppo", {"memory": "gro"}, r"memory='gro' is unknown\. Did you mean gru\?"),
        ("ppo", {"sequence_length": 7}, "sequence_length=7 has to divide steps_per_batch=20"),
        ("ppo", {"mini_batch_size": 25}, "sequence_length=10 has to divide .* mini_batch_size=25"),
        (
            "ppo",
            {"memory": None, "sequence_length": 10},
            "sequence_length=10 has no effect without",
        ),
        (
            "ppo",
            {"share_network": False},
            "share_network=False, but policy and value have one memory: set memory=None, or",
        ),
        ("dqn", {"batch_size": 20}, "sequence_length=8 has to divide batch_size=20"),
        ("sac", {"burn_in": 8}, "sequence_length=8 has to .* be above burn_in=8"),
        ("td3", {"buffer_size": 7}, "sequence_length=8 has to .* not above buffer_size=7"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(name, options, said):
    with pytest.raises(ConfigError, match=said) as refused:
        make(name, **options)
    assert "\n" not in str(refused.value)
