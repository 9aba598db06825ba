"""Scenarios of VMAS: layout and returns by hand, resets, random numbers, exact resume."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from marks import slow_except
from toy_scenarios import CountsResets, Expands, MakesAgents, Noisy, Steps

from hooktrainer import ConfigError, OverlappedCollector, VectorCollector
from hooktrainer.errors import StateMismatchError
from hooktrainer.testing import check_collector


def collector(scenario=Steps, num_envs=2, steps=6, **kwargs):
    return VectorCollector(scenario, num_envs=num_envs, frames_per_batch=num_envs * steps, **kwargs)


def test_the_layout_is_torchrls():
    batch = collector().collect()
    assert batch.shape == (2, 6)
    assert batch["agents"].shape == batch["next", "agents"].shape == (2, 6, 2)
    shapes = {
        ("agents", "observation"): (2, 6, 2, 3),
        ("agents", "action"): (2, 6, 2, 2),
        ("next", "agents", "observation"): (2, 6, 2, 3),
        ("next", "agents", "reward"): (2, 6, 2, 1),
        ("next", "agents", "episode_reward"): (2, 6, 2, 1),
        ("next", "agents", "done"): (2, 6, 2, 1),
        ("next", "done"): (2, 6, 1),
        ("next", "reward"): (2, 6, 1),
        ("done",): (2, 6, 1),
    }
    assert {key: tuple(batch[key].shape) for key in shapes} == shapes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchrl.envs.libs.vmas import VmasEnv

        rollout = VmasEnv("balance", num_envs=2).rollout(2)
    ours, theirs = (
        {key if isinstance(key, tuple) else (key,) for key in one.keys(True, True)}
        for one in (batch, rollout)
    )
    assert {key for key in theirs if "info" not in key} <= ours


def test_returns_lengths_and_final_observations_by_hand():
    batch = collector().collect()
    after = batch["next"]
    # Environment 0 ends after 2 steps, environment 1 after 3; agent a gets a times the step.
    assert after["done"].squeeze(-1).tolist() == [[False, True] * 3, [False, False, True] * 2]
    assert after["step_count"].squeeze(-1).tolist() == [[1, 2] * 3, [1, 2, 3] * 2]
    assert after["agents", "episode_reward"][0, :2].squeeze(-1).tolist() == [[1, 2], [3, 6]]
    assert after["agents", "episode_reward"][1, :3].squeeze(-1).tolist() == [
        [1, 2],
        [3, 6],
        [6, 12],
    ]
    assert after["episode_reward"][0, :, 0].tolist() == [1.5, 4.5] * 3
    assert after["reward"][0, :, 0].tolist() == [1.5, 3.0] * 3
    assert after["agents", "observation"][0, :, 1, 1].tolist() == [1, 2] * 3
    assert batch["agents", "observation"][0, :, 1, 1].tolist() == [0, 1] * 3
    assert batch["agents", "observation"][0, 0, :, 2].tolist() == [1, 2]
    assert after["agents", "terminated"][0, 1].squeeze(-1).tolist() == [True, True]
    # Each episode has a start of its own, and the others' episodes go on undisturbed.
    starts = batch["agents", "observation"][..., 0, 0]
    assert len(starts[0].unique()) == 3
    assert len(starts[1].unique()) == 2
    assert not batch["done"].any()


def test_max_steps_truncates_and_terminal_states_do_not():
    batch = collector(env_kwargs={"max_steps": 3}, num_envs=3, steps=4).collect()["next"]
    assert batch["truncated"].squeeze(-1)[2].tolist() == [False, False, True, False]
    assert batch["terminated"].squeeze(-1)[2].tolist() == [False] * 4
    assert batch["terminated"].squeeze(-1)[0].tolist() == [False, True, False, True]


def test_a_reset_that_changes_more_than_rows_is_done_one_by_one():
    one, other = collector(CountsResets), collector(Steps)
    batch, usual = one.collect(), other.collect()
    assert one.envs.world._row_by_row
    assert not other.envs.world._row_by_row
    assert batch["next", "step_count"].equal(usual["next", "step_count"])
    assert batch["next", "episode_reward"].equal(usual["next", "episode_reward"])


@pytest.mark.parametrize(
    "scenario",
    slow_except(
        [Steps, CountsResets, Expands, Noisy, "balance", "simple_tag"],
        CountsResets,
        Noisy,
    ),
)
def test_it_keeps_the_contract(scenario):
    env = f"vmas/{scenario}" if isinstance(scenario, str) else scenario
    kwargs = {"max_steps": 5}
    check_collector(lambda: collector(env, env_kwargs=kwargs, steps=12), batches=2)


def test_global_random_numbers_are_left_alone():
    torch.manual_seed(3), np.random.seed(3)
    expected = torch.rand(2).tolist(), np.random.rand(2).tolist()
    torch.manual_seed(3), np.random.seed(3)
    collector().collect()
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist()) == expected


def test_a_scenario_that_makes_objects_mid_episode_warns_and_restarts():
    made, other = collector(MakesAgents), collector(MakesAgents)
    assert "MakesAgents: it makes a new Agent during an" in made.unsaved
    assert made.resumes == "partly"
    made.collect()
    other.load_state_dict(made.state_dict())
    assert other.frames == 12
    assert (other.collect()["next", "step_count"][:, 0] == 1).all()


def test_actions_are_clipped_and_discrete_ones_are_indices():
    class Far:
        in_keys = [("agents", "observation")]  # noqa: RUF012

        def act(self, observation):
            return {("agents", "action"): torch.full((2, 2, 2), 9.0)}

    batch = collector(policy=Far()).collect()
    assert (batch["agents", "action"] == 9).all()  # the batch holds what the policy did
    batch = collector(env_kwargs={"continuous_actions": False}).collect()
    assert batch["agents", "action"].shape == (2, 6, 2)
    assert set(batch["agents", "action"].unique().tolist()) <= set(range(9))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: collector("vmas/balanse"), "'vmas/balanse'. Did you mean vmas/balance"),
        (
            lambda: collector("vmas/balance", env_kwargs={"n_agentz": 3}),
            r"vmas/balance: Scenario kwargs: {'n_agentz': 3} passed but not used",
        ),
        (
            lambda: collector("vmas/balance", env_kwargs={"n_agents": 1}),
            "vmas/balance cannot be made with env_kwargs={'n_agents': 1}",
        ),
        (lambda: collector(env_kwargs={"num_envs": 3}), "cannot be made with"),
        (lambda: collector(policy=lambda x: x), "cannot act for several agents: give it in_keys"),
        (lambda: collector().shard(0, 2), "2 processes cannot share the environments of Steps"),
        (lambda: collector(seed=-1), "seed=-1"),
    ],
)
def test_invalid_arguments_are_refused(make, problem):
    with pytest.raises(ConfigError, match=problem):
        make()


def test_actions_of_a_wrong_shape_are_named():
    class Wrong:
        in_keys = [("agents", "observation")]  # noqa: RUF012

        def act(self, *inputs):
            return {("agents", "action"): torch.zeros(2, 2)}

    problem = r"is torch.float32 \[2, 2\]; 2 environments with 2 agents .* need \[2, 2, 2\]"
    with pytest.raises(ConfigError, match=problem):
        collector(policy=Wrong()).collect()


def test_another_number_of_environments_is_no_state_for_it():
    three, two = collector(num_envs=3), collector()
    three.collect()
    with pytest.raises(StateMismatchError, match="num_envs is 2 here and 3 in the state"):
        two.load_state_dict(three.state_dict())
    assert two.fitting(three.state_dict()) is None  # they would play the same episodes again
    with pytest.raises(StateMismatchError, match="of another kind"):
        collector().load_state_dict({"frames": 1})


def test_it_is_refused_in_a_thread_whose_random_numbers_are_the_learners():
    overlapped = OverlappedCollector(collector(), 1, mode="thread")
    with pytest.raises(ConfigError, match=r"VMAS and stages above 1 set .* mode='process'"):
        overlapped.start()
    overlapped.shutdown()
