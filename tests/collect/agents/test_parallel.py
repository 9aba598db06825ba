"""Parallel environments of PettingZoo: agents that leave, masks, returns by hand, exact resume."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import torch
from marks import slow_except
from toy_parallel import Drawn, Leaving, Nothing, Staying

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.errors import MissingPackageError, StateMismatchError
from hooktrainer.testing import check_collector

SPREAD = "pettingzoo/mpe/simple_spread_v3"


class First:
    """Every cat takes the first action, the dog one out of bounds."""

    in_keys = [("cat", "observation"), ("dog", "observation")]  # noqa: RUF012

    def act(self, cats, dogs):
        shape = cats.shape[:2]
        return {
            ("cat", "action"): torch.zeros(shape, dtype=torch.int64),
            ("dog", "action"): torch.full((len(dogs), 1, 1), 7.0),
        }


def collector(env=Leaving, num_envs=2, steps=8, **kwargs):
    return VectorCollector(env, num_envs=num_envs, frames_per_batch=num_envs * steps, **kwargs)


def test_agents_that_leave_by_hand():
    batch = collector(policy=First()).collect()
    after = batch["next"]
    # The cats leave after 2 and 3 steps, the dog after 4: there the episode ends.
    assert batch["cat", "mask"][0, :5].tolist() == [
        [True, True],
        [True, True],
        [False, True],
        [False, False],
        [True, True],
    ]
    assert batch["dog", "mask"][0, :5].all()
    assert after["cat", "mask"][0, :4].tolist() == [
        [True, True],
        [False, True],
        [False, False],
        [False, False],
    ]
    assert after["cat", "terminated"][0, :4].squeeze(-1).tolist() == [
        [False, False],
        [True, False],
        [True, True],
        [True, True],
    ]
    assert after["done"][0, :, 0].tolist() == [False, False, False, True] * 2
    assert after["terminated"].equal(after["done"])
    # Reward of cat a is 10 a + 1, since action 0 of the policy is 1 of the environment.
    rewards = after["cat", "reward"][0, :4].squeeze(-1)
    assert rewards.tolist() == [[11, 21], [11, 21], [0, 21], [0, 0]]
    assert after["cat", "episode_reward"][0, 3].flatten().tolist() == [22, 63]
    assert after["dog", "episode_reward"][0, 3].flatten().tolist() == [120]
    assert after["episode_reward"][0, 3, 0] == pytest.approx((22 + 63 + 120) / 3)
    assert after["reward"][0, 2, 0] == pytest.approx((0 + 21 + 30) / 3)
    assert after["step_count"][0, :, 0].tolist() == [1, 2, 3, 4] * 2
    assert batch["cat", "observation"][0, 3, 0].tolist() == [0, 0]  # it is gone
    start = batch["dog", "observation"][0, 0, 0, 0]
    assert after["cat", "observation"][0, 1, 0].tolist() == [start, 2]  # its last
    assert after["state"][0, 3].tolist() == [start, 4, 0]
    assert batch["dog", "observation"][0, 4, 0, 0] != start


def test_a_time_limit_truncates():
    batch = collector(partial(Leaving, limit=3), policy=First()).collect()["next"]
    assert batch["truncated"][0, :6, 0].tolist() == [False, False, True] * 2
    assert not batch["terminated"][0, :3].any()
    assert batch["cat", "terminated"][0, 2].flatten().tolist() == [True, True]
    assert batch["dog", "truncated"][0, 2].flatten().tolist() == [True]


def test_actions_are_those_of_the_environments_space():
    taken = []

    class Recorded(Leaving):
        def step(self, actions):
            taken.append(actions)
            return super().step(actions)

    collector(Recorded, policy=First(), steps=7).collect()
    assert taken[0]["cat_0"] == 1
    assert taken[0]["dog_0"].tolist() == [1.0]  # clipped


@pytest.mark.parametrize("where", ["observation", "info"])
def test_masks_are_kept_and_random_actions_keep_to_them(where):
    batch = collector(partial(Leaving, masks=where)).collect()
    mask, act, alive = (batch["cat", key] for key in ("action_mask", "action", "mask"))
    assert "action_mask" not in batch["dog"]  # which has nothing to choose from
    assert mask.shape == (2, 8, 2, 4)
    assert mask.dtype is torch.bool
    assert (mask[alive].sum(-1) == 1).all()
    assert mask[~alive].all()
    assert mask.gather(-1, act.unsqueeze(-1)).all()


@pytest.mark.parametrize(
    "env", slow_except([Leaving, partial(Leaving, masks="observation"), SPREAD], 0, 2)
)
def test_it_keeps_the_contract(env):
    check_collector(lambda: collector(env, steps=30, total_frames=140), batches=2)


def test_a_replay_that_differs_is_refused():
    made = collector(Drawn)
    made.collect()
    made.collect()
    with pytest.raises(StateMismatchError, match=r"environment \d, .*, does not lead to"):
        collector(Drawn).load_state_dict(made.state_dict())


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: collector(partial(Leaving, forgets=True)).collect(),
            r"step\(\) of Leaving gave cat_1 the reward None: every agent that",
        ),
        (
            lambda: collector(Nothing).collect(),
            "cat_0 got an action_mask that forbids every action",
        ),
        (
            lambda: collector(Staying).collect(),
            "Staying has cat_0 terminated, and still in agents: remove an agent that has ended",
        ),
        (lambda: collector(dict), "env builds a dict, not a gymnasium.Env"),
        (lambda: collector("pettingzoo/mpe/simple_spred_v3"), "mpe2 has no 'simple_spred_v3'"),
        (lambda: collector("pettingzoo/simple_spread_v3"), "Give family and name"),
        (
            lambda: collector(groups={"all": ["cat_0", "cat_1", "dog_0"]}),
            "the agents of 'all' have different spaces",
        ),
        (lambda: collector(num_envs=3).shard(0, 2), "num_envs=3 cannot be shared equally by 2"),
    ],
)
def test_invalid_arguments_are_refused(make, problem):
    with pytest.raises(ConfigError, match=problem):
        make()


def test_actions_that_are_no_indices_are_named():
    class Floats(First):
        def act(self, cats, dogs):
            return {**super().act(cats, dogs), ("cat", "action"): torch.full(cats.shape[:2], 1.7)}

    problem = r"is torch.float32 \[2, 2\]; .* need indices \[2, 2\]"
    with pytest.raises(ConfigError, match=problem):
        collector(policy=Floats()).collect()


def test_infos_may_be_none():
    class Silent(Leaving):
        def _infos(self):
            return dict.fromkeys(self.agents)

    assert (collector(Silent).collect() == collector().collect()).all()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "mpe2.simple_spread_v3", raising=False)
    monkeypatch.setitem(sys.modules, "mpe2", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hooktrainer\[pettingzoo\]'"):
        collector(SPREAD)


class Says(Leaving):
    """Returns what it is told to at the reset, or at steps."""

    def __init__(self, change, masks="", at_steps=False):
        super().__init__(masks=masks)
        self.change, self.at_steps = change, at_steps

    def step(self, actions):
        seen, *rest, infos = super().step(actions)
        if self.at_steps:
            self.change(self, seen, infos)
        return seen, *rest, infos

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed, options)
        seen, infos = dict(seen), {agent: dict(info) for agent, info in infos.items()}
        if not self.at_steps:
            self.change(self, seen, infos)
        return seen, infos


class Bare(Leaving):
    def reset(self, seed=None, options=None):
        return super().reset(seed, options)[0]


def lacks(env, seen, infos):
    del seen["cat_1"]


def wider(env, seen, infos):
    seen["cat_1"] = np.zeros(3)


def joins(env, seen, infos):
    env.agents.append("fish_0")


def no_mask(env, seen, infos):
    del infos["cat_1"]["action_mask"]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            partial(Says, lacks),
            r"has the agents cat_0, cat_1, dog_0, .* and observations of cat_0, dog_0",
        ),
        (partial(Says, wider), r"observation of Says \(cat_1\) has the shape \[3\], not \[2\]"),
        (partial(Says, joins), "cat_1, dog_0, fish_0, of possible_agents cat_0"),
        (partial(Says, no_mask, masks="info"), r"info\['action_mask'\] is missing"),
        (partial(Says, lacks, at_steps=True), r"step\(\) of Says .* observations of cat_0, dog_0:"),
        (partial(Says, joins, at_steps=True), r"step\(\) of .* fish_0, of possible_agents cat_0"),
        (Bare, r"reset\(\) of .*Bare.* returned a dict; let it return \(observation, info\)"),
    ],
)
def test_observations_are_checked_against_their_spaces(make, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        collector(make).collect()
    assert "\n" not in str(caught.value)
