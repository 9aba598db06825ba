"""Algorithms for several agents: what they learn, read and log, and what they refuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from any_agents import Match, Recall
from gymnasium import spaces
from marks import slow_except
from outcomes import same
from tensordict import TensorDict
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import set_interaction_type
from test_algorithms import assert_resumed_is_whole

from hooktrainer import (
    ConfigError,
    RandomNetworkDistillation,
    SymmetryAugmentation,
    list_policies,
    load_policy,
    play_episodes,
)
from hooktrainer.algorithms import IPPO, MADDPG, MAPPO, MASAC, PPO, QMIX, VDN
from hooktrainer.collect.agents.parallel_env import pettingzoo_factory
from hooktrainer.networks import CentralNetwork

SMALL = {"tuned": False, "progress_bar": False, "num_cells": (32,), "eval_interval": 100_000}
ON_POLICY = {"num_envs": 16, "steps_per_batch": 20, "mini_batch_size": 80, "lr": 1e-2}
MIXING = {
    "num_envs": 16,
    "steps_per_batch": 5,
    "init_random_frames": 400,
    "annealing_frames": 2_000,
    "batch_size": 64,
    "lr": 5e-3,
    "target_interval": 20,
}
CENTRAL = {
    "num_envs": 16,
    "steps_per_batch": 5,
    "init_random_frames": 800,
    "optim_steps_per_batch": 16,
    "batch_size": 64,
    "gamma": 0.5,
    "lr": 3e-3,
}


@pytest.mark.learning
@pytest.mark.parametrize(
    ("kind", "env", "options"),
    slow_except(
        [
            (MAPPO, Match, ON_POLICY),
            (IPPO, partial(Match, roles=True), ON_POLICY | {"share_parameters": False}),
            (MAPPO, partial(Match, continuous=True), ON_POLICY | {"log_std": -0.5}),
            (VDN, Match, MIXING),
            (QMIX, partial(Match, roles=True), MIXING),
            (MADDPG, partial(Match, continuous=True), CENTRAL),
            (MASAC, partial(Match, continuous=True), CENTRAL | {"share_parameters": False}),
        ],
        0,
        3,
    ),
)
def test_it_learns_to_match(kind, env, options):
    until = {"total_frames": 6_000, "eval_interval": 800, "stop_at": 4.6}
    run = kind(env=env, seed=0, **{**SMALL, **until, **options})
    trainer = run.train()
    assert trainer.metrics.reported["eval/return"] > 4.5  # of 5


def test_returns_are_logged_by_group_and_by_agent(logger):
    env = partial(Match, roles=True)
    options = SMALL | ON_POLICY | {"loggers": [logger]}
    MAPPO(env=env, total_frames=320, **options).train()
    names = {name for _, row in logger.rows for name in row}
    assert {
        "train/return",
        "train/left/return",
        "train/left/left/return",
        "train/right/right/return",
        "eval/return",
        "loss/objective_left",
        "loss/critic_right",
    } <= names
    (row,) = [row for _, row in logger.rows if "train/return" in row]
    mean = (row["train/left/return"] + row["train/right/return"]) / 2
    assert row["train/return"] == pytest.approx(mean)


def networks(kind, **options):
    trainer = kind(env=Match, total_frames=320, **SMALL | options).trainer()
    loss = trainer.loss_module.by_group["agents"]
    return loss.actor_network, loss.critic_network


def test_mappos_critic_sees_all_ippos_its_own():
    _, critic = networks(MAPPO)
    assert isinstance(critic.network, CentralNetwork)
    _, critic = networks(IPPO)
    assert not isinstance(critic.network, CentralNetwork)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: PPO(env="vmas/balance", total_frames=10),
            "ppo trains one agent, and vmas/balance has several: train them with mappo or ippo",
        ),
        (
            lambda: QMIX(env=partial(Match, continuous=True), total_frames=10),
            "qmix is for discrete actions, but .* Box.*: mappo, ippo, maddpg and masac take",
        ),
        (
            lambda: MADDPG(env=Match, total_frames=10),
            "maddpg is for continuous actions, but .* Discrete.3.: mappo, ippo, vdn and qmix",
        ),
        (
            lambda: MAPPO(env=Match, groups={"a": ["left"]}, total_frames=10),
            "each of the agents left, right has to be in one group",
        ),
        (
            lambda: MAPPO(env="CartPole-v1", total_frames=10),
            "env='CartPole-v1' is no environment of several agents",
        ),
        (lambda: MAPPO(env="vmas/balanse", total_frames=10), "no scenario 'vmas/balanse'"),
        *(
            (
                partial(kind, env=env, total_frames=10, hooks=[RandomNetworkDistillation(3)]),
                "RandomNetworkDistillation changes the reward of all .* learns from its own reward",
            )
            for kind, env in ((MAPPO, Match), (MASAC, partial(Match, continuous=True)))
        ),
        (
            lambda: QMIX(env=Match, total_frames=10, hooks=[SymmetryAugmentation(dict)]),
            "SymmetryAugmentation mirrors the actions of one agent, 'action', and QMixLoss reads",
        ),
    ],
)
def test_what_cannot_work_is_named(make, problem):
    with pytest.raises(ConfigError, match=problem):
        make().trainer()


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    ("kind", "env", "options"),
    slow_except(
        [
            (MAPPO, partial(Match, roles=True), ON_POLICY | {"normalize_observations": True}),
            (
                IPPO,
                Match,
                ON_POLICY | {"share_parameters": False, "groups": {"b": ["right", "left"]}},
            ),
            (QMIX, partial(Match, roles=True), MIXING),  # and VDN's
            (MADDPG, partial(Match, continuous=True), CENTRAL),
            (MASAC, partial(Match, continuous=True), CENTRAL | {"share_parameters": False}),
        ],
        2,
    ),
)
def test_a_saved_policy_is_the_one_that_was_trained(kind, env, options, tmp_path):
    options = SMALL | options | {"run_dir": tmp_path, "snapshots": 2, "eval_episodes": 2}
    trainer = kind(env=env, total_frames=640, **options).train()
    assert [saved.frames for saved in list_policies(tmp_path)] == [0, 640]
    loaded = load_policy(tmp_path, trust=True)
    policy = trainer.registry.modules["evaluate"].policy
    size = len(next(iter(loaded.interface.groups)).agents)
    seen = {
        group.name: {"observation": torch.rand(4, size, 3)} for group in loaded.interface.groups
    }
    with set_interaction_type(InteractionType.DETERMINISTIC):
        expected = policy(TensorDict(seen, [4]))
    given = loaded(TensorDict(seen, [4]))
    for group in loaded.interface.groups:
        assert given[group.name, "action"].equal(expected[group.name, "action"])
    assert loaded.evaluation.episodes == 10  # played by a process of its own
    assert loaded.evaluation.lengths == (5,) * 10
    played = play_episodes(loaded, loaded.evaluation.seed, 3)
    assert tuple(one.return_ for one in played) == loaded.evaluation.returns[:3]


class Parts(Match):
    """Chooses by a part of the action; the other is within its bounds."""

    def action_space(self, agent):
        return spaces.Dict(number=spaces.Discrete(3), rest=spaces.Box(-0.1, 0.1, (2,)))

    def _chosen(self, action):
        assert self.action_space("left").contains(action), action
        return action["number"]


@pytest.mark.parametrize("kind", [MAPPO, IPPO])
def test_actions_of_agents_have_parts(kind, tmp_path):
    options = SMALL | ON_POLICY | {"run_dir": tmp_path, "snapshots": 2, "eval_episodes": 2}
    assert kind(env=Parts, total_frames=320, **options).train().optim_count > 0
    loaded = load_policy(tmp_path, trust=True)
    assert play_episodes(loaded, 0, 2)[0].length == 5


class Number(Match):
    """Its continuous actions are numbers, without a dimension."""

    def action_space(self, agent):
        return spaces.Box(-1, 1, ())

    def _chosen(self, action):
        return super()._chosen([action])


@pytest.mark.parametrize("kind", [MADDPG, MASAC])
def test_actions_without_a_dimension_are_those_of_one_number(kind):
    options = SMALL | CENTRAL | {"total_frames": 160, "init_random_frames": 80, "eval_episodes": 2}
    plain, number = (
        kind(env=partial(env, continuous=True), seed=0, **options).train()
        for env in (Match, Number)
    )
    assert plain.optim_count == number.optim_count > 0
    pairs = zip(plain.loss_module.parameters(), number.loss_module.parameters(), strict=True)
    assert all(one.equal(other) for one, other in pairs)


def test_observations_are_normalized_by_those_of_agents_that_are_there():
    env = partial(Recall, leaves=True)
    options = SMALL | ON_POLICY | {"normalize_observations": True, "eval_episodes": 0}
    trainer = IPPO(env=env, total_frames=640, **options).trainer()
    seen = []
    trainer.register_op("pre_steps_log", lambda batch: seen.append(batch["agents"].clone()))
    trainer.train()
    agents = torch.cat(seen)
    there = agents["observation"][agents["mask"]].double()
    assert 0 < len(there) < agents["mask"].numel()
    norm = trainer.registry.modules["observation_normalizer"].norm
    torch.testing.assert_close(norm.mean, there.mean(0))
    torch.testing.assert_close(norm.var, there.var(0, correction=0))


# -- Self-play.

TIC_TAC_TOE = "pettingzoo/classic/tictactoe_v3"


def self_play(total_frames, **options):
    return IPPO(
        env=TIC_TAC_TOE,
        **{
            "total_frames": total_frames,
            "num_envs": 4,
            "steps_per_batch": 16,
            "mini_batch_size": 32,
            "eval_episodes": 4,
            "self_play": 2,
            "self_play_interval": 100,
            **SMALL,
            **options,
        },
    ).trainer()


def test_self_play_resumes_with_its_pool_ratings_and_games(tmp_path):
    make = partial(self_play, save_interval=64, anneal_lr=False)
    whole, resumed = assert_resumed_is_whole(make, tmp_path, 512, 330)
    hooks = [one.registry.modules["self_play"] for one in (whole, resumed)]
    assert same(*[hook.state_dict() for hook in hooks])
    assert hooks[0].policy.count == 6  # at 0, 128, 256, ... and 512, the first of each hundred
    assert len(hooks[0].ratings) == 2
    assert -1 <= whole.metrics.reported["random/return"] <= 1


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_a_saved_policy_takes_turns(tmp_path):
    self_play(128, run_dir=tmp_path, snapshots=2).train()
    loaded = load_policy(tmp_path)
    played = play_episodes(loaded, loaded.evaluation.seed, 2)
    assert tuple(one.length for one in played) == loaded.evaluation.lengths[:2]
    env = pettingzoo_factory("classic/tictactoe_v3")()
    assert play_episodes(loaded, loaded.evaluation.seed, 2, env=env) == played
    env.reset(seed=0)  # nothing is drawn in this game
    turns = 0
    for agent in env.agent_iter():
        seen, _, terminated, truncated, _ = env.last()
        over = terminated or truncated
        env.step(None if over else loaded({agent: seen})[agent])
        turns += not over
    assert turns == played[0].length


@pytest.mark.learning
@pytest.mark.slow
def test_self_play_learns_tic_tac_toe():
    options = {"self_play": 10, "eval_episodes": 200, "eval_interval": 10**9}
    options["total_frames"] = 60_000
    trainer = IPPO(env=TIC_TAC_TOE, seed=0, progress_bar=False, **options).train()
    found = trainer.metrics.reported
    mean, deviation = found["random/return"], found["random/return_std"]
    games = mean**2 + deviation**2  # the share of games that are won or lost
    lost = (games - mean) / 2
    assert lost <= 0.05
    assert mean > 0.8
    assert found["selfplay/elo"] > 1150
    assert found["selfplay/win_rate"] > 0.5
