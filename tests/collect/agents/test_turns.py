"""Environments of PettingZoo whose agents act in turns: masks, rewards, ends, exact resume."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel
from toy_turns import Turns

from hooktrainer import VectorCollector
from hooktrainer.networks import ValueNetwork
from hooktrainer.objectives import GAE, keys_of
from hooktrainer.testing import check_collector

ORDER = [0, 1, 2, 0, 1, 0, 1, 0]  # agent 2 is over after its first turn


def wrapped(**kwargs):
    return turn_based_aec_to_parallel(Turns(**kwargs))


def wrapped_again(**kwargs):
    return BaseParallelWrapper(wrapped(**kwargs))


def collected(env, steps=12, num_envs=2):
    made = VectorCollector(env, num_envs=num_envs, frames_per_batch=steps * num_envs)
    batch = made.collect()
    made.shutdown()
    return batch


@pytest.mark.parametrize("env", [Turns, wrapped, wrapped_again, partial(Turns, cut=True)])
def test_one_agent_acts_and_all_earn_by_hand(env):
    batch = collected(env)
    after, (acts, *_) = batch["next", "agents"], batch["agents", "mask"]
    assert acts.int().argmax(-1).tolist() == ORDER + ORDER[:4]
    assert acts.sum(-1).eq(1).all()
    assert batch["agents", "action_mask"][acts.logical_not().expand(2, -1, -1)].all()
    rewards = after["reward"][0, :8].squeeze(-1)
    assert rewards[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert rewards[:, 1].tolist() == [101, 102, 103, 104, 105, 106, 107, 108]
    # Agent 2 earns until its turn would come, after step 5; there it leaves.
    assert rewards[:, 2].tolist() == [201, 202, 203, 204, 205, 0, 0, 0]
    over = [False] * 7 + [True]
    assert after["done"][0, :8, 0, 0].tolist() == over
    assert after["done"][0, :8, 2, 0].tolist() == [False] * 4 + [True] * 4
    assert batch["next", "done"][0, :8, 0].tolist() == over
    cut = getattr(env, "keywords", {}).get("cut", False)
    assert bool(batch["next", "truncated"][0, 7]) == cut
    assert bool(after["terminated"][0, 7, 0]) == (not cut)
    mean = (36 + 36 + 800 + 15 + 1000) / 3
    assert batch["next", "episode_reward"][0, 7].item() == pytest.approx(mean)


def test_the_advantage_of_a_turn_is_what_its_agent_earns_from_there_on():
    batch = collected(Turns)
    zero = ValueNetwork(Zero(), [("agents", "observation")], [("agents", "state_value")])
    gae = GAE(gamma=1.0, lmbda=1.0, value_network=zero)
    gae.set_keys(
        value=("agents", "state_value"),
        **keys_of("agents", "reward", "done", "terminated", "advantage", "value_target"),
        **keys_of("agents", "mask", "learned"),
    )
    out = gae(batch)["agents"]
    earned = [
        [range(n, 9) for n in (1, 4, 6, 8)],
        [range(102, 109), range(105, 109), range(107, 109)],
        [range(203, 206)],
    ]
    for agent, turns in enumerate(earned):
        found = out["advantage"][0, :8, agent, 0][out["mask"][0, :8, agent]]
        assert found.tolist() == [sum(turn) for turn in turns]
    # Of the next episode, agent 1 has its second turn just after the batch, agent 2 not yet.
    assert out["learned"][0, :8].equal(out["mask"][0, :8])
    assert out["learned"][0, 8:].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]


class Zero(torch.nn.Module):
    def forward(self, x):
        return x[..., :1] * 0


def test_it_keeps_the_contract():
    make = partial(VectorCollector, Turns, num_envs=2, frames_per_batch=26, total_frames=104)
    check_collector(make, batches=2)


def test_an_attribute_called_state_that_is_no_method_is_left_alone():
    assert collected("pettingzoo/classic/rps_v2", steps=4).get("state", None) is None


def test_in_tic_tac_toe_the_loser_pays_at_the_end():
    batch = collected("pettingzoo/classic/tictactoe_v3", steps=40)
    done = batch["next", "done"].squeeze(-1)
    rewards = batch["next", "agents", "reward"].squeeze(-1)
    assert done.sum() >= 8
    assert rewards[~done].eq(0).all()
    assert rewards[done].sum(-1).eq(0).all()
    assert rewards[done].abs().sum() > 0
    mask, action = (batch["agents", key] for key in ("action_mask", "action"))
    assert mask.gather(-1, action.unsqueeze(-1)).all()
