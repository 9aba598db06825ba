"""Agents with memories learn on sequences what they did step by step, and resume exactly."""

from __future__ import annotations

import copy
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import remembering
import torch
from any_agents import Recall
from marks import slow_except
from outcomes import same
from remembering import collect, in_vain
from tensordict.nn import InteractionType
from test_algorithms import assert_resumed_is_whole
from torch import nn
from torch.nn.functional import smooth_l1_loss

from hooktrainer import ConfigError, Trainer, VectorCollector, algorithms, load_policy
from hooktrainer.hooks import SequenceReplay
from hooktrainer.loop import Progress
from hooktrainer.networks import (
    AgentsMemory,
    AgentsPolicy,
    CategoricalPolicy,
    GRUMemory,
    MemoryTrunk,
    SelfPlayPolicy,
    WithPresence,
    mlp,
)
from hooktrainer.objectives import GAE, keys_of
from hooktrainer.policies import PolicyRecorder
from hooktrainer.replay import ReplayBuffer

TIC_TAC_TOE = "pettingzoo/classic/tictactoe_v3"
SMALL: dict[str, Any] = {**remembering.SMALL, "tuned": False}
REPLAYED = {"steps_per_batch": 9, **remembering.REPLAYED}


def make(name: str, memory: Any = "gru", env: Any = Recall, **options: Any) -> Trainer:
    """A small run in `Recall`."""
    kind = algorithms.get(name)
    known = {field.name for field in fields(kind)}
    small = SMALL | (REPLAYED if "burn_in" in known else {})
    given = {key: small[key] for key in known & small.keys() - in_vain(memory)}
    return kind(env=env, memory=memory, **{**given, **options}).trainer()


APART: dict[str, Any] = {"share_parameters": False}
ENDING = partial(Recall, leaves=True)
ROLES = partial(Recall, roles=True, leaves=True, masked=True)
ACTING = [
    ("ippo", "gru", ENDING, {}),
    ("mappo", "lstm", ROLES, APART),
    ("mappo", "transformer", ROLES, {}),
    ("ippo", "transformer", ROLES, APART),
    ("mappo", "gru", Recall, {}),
]


@pytest.mark.parametrize(("name", "memory", "env", "options"), slow_except(ACTING, 0, 1, 2))
def test_acting_and_learning_agree(name, memory, env, options):
    trainer = make(name, memory, env, **options)
    batch = collect(trainer)
    begins = batch["is_init"][:, 1:].squeeze(-1)
    for group, loss in trainer.loss_module.by_group.items():
        policy, value = loss.actor_network, loss.critic_network
        log_prob, _ = policy.log_prob_and_entropy(policy.inputs(batch), batch[group, "action"])
        torch.testing.assert_close(log_prob, batch[group, "action_log_prob"])

        # GAE values every step by the hidden states that are stored with it.
        gae = GAE(gamma=0.9, lmbda=0.9, value_network=value)
        gae.set_keys(
            value=(group, "state_value"),
            mask=(group, "mask"),
            **keys_of(group, "reward", "done", "terminated", "advantage", "value_target"),
        )
        estimated = gae(batch.clone())
        over = value.evaluate(*value.inputs(batch))
        torch.testing.assert_close(estimated[group, "state_value"], over)
        # Of what follows: the value one step later, unless another episode begins there.
        following = estimated["next", group, "state_value"][:, :-1]
        torch.testing.assert_close(following[~begins], over[:, 1:][~begins])
        assert (following[begins] != over[:, 1:][begins]).any()
        # The next batch begins with the hidden states that this one bootstraps with.
        for key in loss.actor_network.trunk.hidden_keys:
            assert batch[("next", *key)][:, -1].any()


class Told(Recall):
    """A state contains what each agent has to remember."""

    def __init__(self, **options: Any) -> None:
        super().__init__(continuous=True, **options)

    def state(self) -> Any:
        shown = [np.eye(3)[self.shown[agent]] for agent in self.possible_agents]
        return np.array([*shown[0], *shown[1], self.count], np.float32)


CENTRAL = ("maddpg", "masac")
MOVING = partial(Recall, continuous=True)
TOLD = partial(Told, leaves=True)
TWO: dict[str, Any] = {"groups": {"left": ["left"], "right": ["right"]}}
REPLAYING = [
    ("qmix", "gru", ROLES, {}),
    ("vdn", "transformer", ENDING, APART),
    ("maddpg", "gru", TOLD, TWO),
    ("masac", "lstm", partial(MOVING, leaves=True), APART),
]


@pytest.mark.parametrize(("name", "memory", "env", "options"), slow_except(REPLAYING, 0, 2))
def test_replayed_sequences_are_what_was_played(name, memory, env, options):
    trainer = make(name, memory, env, **options)
    loss, batch = trainer.loss_module, collect(trainer)
    replay = SequenceReplay(
        ReplayBuffer(100, keys=loss.in_keys), 8, overlap=3, hidden_keys=loss.hidden_keys
    )
    replay.extend(batch)
    rows = replay.replay_buffer.state_dict()["storage"]
    assert len(rows) == 4
    for network in (loss.actors if name in CENTRAL else loss.value_networks).values():
        inputs = network.inputs(batch)
        flat = [value.flatten(0, 1) for value in inputs]
        by_step = network.evaluate(*flat).unflatten(0, batch.shape)
        torch.testing.assert_close(network.evaluate(*inputs), by_step)
        torch.testing.assert_close(network.evaluate(*network.inputs(rows)), by_step[:, :8])


BURN_IN = REPLAYED["burn_in"]


def features_at(trunk: Any, rows: Any, at: str, t: int) -> Any:
    """A memory's features at step ``t`` of sequences, or of what follows it, step by step."""
    states = [rows[key][:, 0] for key in trunk.hidden_keys]
    for step in range(t + 1):
        with torch.set_grad_enabled(step >= BURN_IN):
            seen = [rows[key][:, step] for key in trunk.observed]
            features, after = trunk.remember(*seen, rows["is_init"][:, step], *states)
            states = list(after.values())
    if at == "next":
        seen = [rows[("next", *key)][:, t] for key in trunk.observed]
        features, _ = trunk.remember(*seen, torch.zeros_like(rows["is_init"][:, t]), *states)
    return features


def test_the_loss_of_sequences_is_that_of_their_steps():
    """With a trunk for each group; by hand, step by step, with one more step after each."""
    loss = make("qmix", "gru", ROLES, target_interval=100).loss_module
    for target in (loss.target_value_networks, loss.target_mixer):
        for value in target.state_dict().values():
            value.add_(0.1 * torch.randn_like(value))
    rows = collect(make("qmix", "gru", ROLES))
    rows = rows.select(*loss.in_keys, ("left", "mask"), ("right", "mask"), strict=False)
    out = loss(rows.copy().auto_batch_size_(1))["loss"]

    def values(networks: Any, choose: Any, at: Any, t: int) -> Any:
        """What each agent's action is worth at step ``t`` of a sequence, or after it."""
        found = []
        for group, network in networks.items():
            features = features_at(network.trunk, rows, at, t)
            mask, acts = (
                (rows["next"] if at else rows)[group, key][:, t] for key in ("action_mask", "mask")
            )
            value = network.network(features).masked_fill(~mask, -1e30)
            chosen = choose(group, value).unsqueeze(-1)
            found.append(value.gather(-1, chosen) * acts.unsqueeze(-1))
        return torch.cat(found, -2)

    errors, best = [], dict[str, Any]()

    def greedy(group: str, value: Any) -> Any:
        best[group] = value.argmax(-1)
        return best[group]

    for t in range(BURN_IN, rows.shape[1]):
        actions = {group: rows[group, "action"][:, t] for group in loss.value_networks}
        taken = values(loss.value_networks, lambda g, _, of=actions: of[g], "", t)
        values(loss.value_networks, greedy, "next", t)
        later = values(loss.target_value_networks, lambda g, _: best[g], "next", t)
        now, then = (
            [part[group, "observation"][:, t] for group in loss.value_networks]
            for part in (rows, rows["next"])
        )
        goes_on = ~rows["next", "terminated"][:, t]
        target = rows["next", "reward"][:, t] + 0.99 * goes_on * loss.target_mixer(later, *then)
        errors.append(smooth_l1_loss(loss.mixer(taken, *now), target, reduction="none"))
    torch.testing.assert_close(out, torch.stack(errors).mean())


def test_the_loss_of_central_critics_is_that_of_their_steps():
    """Its gradient too: both losses train the memories, and each its own networks after them."""
    loss = make("maddpg", "gru", TOLD, **TWO).loss_module
    for target in (loss.target_actors, loss.target_critics):
        for value in target.state_dict().values():
            value.add_(0.1 * torch.randn_like(value))
    rows = collect(make("maddpg", "gru", TOLD, **TWO))
    rows = rows.select(*loss.in_keys, ("left", "mask"), ("right", "mask"), strict=False)
    assert not rows["right", "mask"].all()
    out = loss(rows.copy().auto_batch_size_(1))
    groups = list(loss.actors)

    def remembered(actors: Any, at: str, t: int) -> dict[str, Any]:
        return {name: features_at(actors[name].trunk, rows, at, t) for name in groups}

    def value_of(critic: Any, actions: Any, masks: Any, state: Any, features: Any) -> Any:
        acts = [actions[name] * masks[name, "mask"][:, t].unsqueeze(-1) for name in groups]
        return critic[0](torch.cat(acts, -2).flatten(1), state[:, t], *features.values())

    sums = dict.fromkeys(((key, name) for key in ("actor", "value") for name in groups), 0.0)
    for t in range(BURN_IN, rows.shape[1]):
        then = rows["next"]
        now, late = remembered(loss.actors, "", t), remembered(loss.target_actors, "next", t)
        known = {name: features.detach() for name, features in now.items()}
        taken = {name: rows[name, "action"][:, t] for name in groups}
        drawn = {name: loss.target_actors[name].evaluate(features=late[name]) for name in groups}
        for name in groups:
            acts = rows[name, "mask"][:, t]
            following = value_of(loss.target_critics[name], drawn, then, then["state"], late)
            reward, over = (then[name, key][:, t, :, 0] for key in ("reward", "terminated"))
            target = (reward + loss.gamma * ~over * following).detach()
            value = value_of(loss.critics[name], taken, rows, rows["state"], now)
            sums["value", name] += ((value - target).square() * acts).sum()
            own = taken | {name: loss.actors[name].evaluate(features=now[name])}
            critic = copy.deepcopy(loss.critics[name])  # which that loss does not train
            gain = value_of(critic, own, rows, rows["state"], known)
            sums["actor", name] -= (gain * acts).sum()
    found, expected = [], []
    for (key, name), total in sums.items():
        found.append(out[f"loss_{key}_{name}"])
        expected.append(total / rows[name, "mask"][:, BURN_IN:].sum())
    torch.testing.assert_close(found, expected)
    both = list(loss.parameters())
    for one, other in zip(found, expected, strict=True):
        grads = [
            torch.autograd.grad(each, both, retain_graph=True, allow_unused=True)
            for each in (one, other)
        ]
        torch.testing.assert_close(*[[g for g in each if g is not None] for each in grads])
        assert [g is None for g in grads[0]] == [g is None for g in grads[1]]


RESUMED = [
    ("mappo", "gru", ROLES, {}),
    ("qmix", "gru", ROLES, {}),
    ("ippo", "transformer", ENDING, APART),
    ("vdn", "lstm", ENDING, APART),
    ("maddpg", "gru", TOLD, TWO),
    ("masac", "transformer", partial(MOVING, leaves=True), APART),
]


@pytest.mark.parametrize(("name", "memory", "env", "options"), slow_except(RESUMED, 0, 4))
def test_a_run_that_is_resumed_within_episodes_is_the_whole_run(
    name, memory, env, options, tmp_path
):
    run = partial(make, name, memory, env, save_interval=72, log_interval=72, **options)
    steps = 10 if name in ("mappo", "ippo") else 9
    run = partial(run, steps_per_batch=steps, **({} if steps == 9 else {"anneal_lr": False}))
    assert_resumed_is_whole(run, tmp_path, 6 * 4 * steps, 4 * 4 * steps)


def test_workers_carry_memories():
    found = []
    for workers in (0, 2):
        collector = VectorCollector(
            ROLES,
            AgentsPolicy(policies()),
            num_envs=4,
            frames_per_batch=40,
            exploration_type=InteractionType.DETERMINISTIC,
            seed=0,
            workers=workers,
        )
        batches = list(islice(collector, 2))
        collector.shutdown()
        found.append(batches[-1].select("is_init", "left", "right", "next"))
    assert same(*[batch.to_dict() for batch in found])
    assert found[0]["left", "memory", "h"].any()


def policies(groups: Any = (("left", 1, 3), ("right", 1, 4))) -> dict[str, CategoricalPolicy]:
    """Policies of `Recall` with two groups, each with a GRU."""
    torch.manual_seed(0)
    made = {}
    for name, agents, actions in groups:
        memory = AgentsMemory([GRUMemory(5, 8)], agents, leave=True)
        seen = [(name, "observation"), (name, "mask")]
        trunk = MemoryTrunk(WithPresence(nn.Identity()), memory, seen, (name, "memory"))
        made[name] = CategoricalPolicy(
            mlp(8, actions, ()), trunk.in_keys, trunk=trunk, action_mask_key=(name, "action_mask")
        )
    return made


@pytest.mark.parametrize(
    ("name", "env"), slow_except([("mappo", ROLES), ("vdn", Recall), ("maddpg", TOLD)], 1, 2)
)
def test_the_saved_policy_acts_as_the_live_one(name, env, tmp_path):
    trainer = make(name, "gru", env)
    trainer.train()
    live = trainer.registry.modules["evaluate"].policy
    loaded = save(live, env, tmp_path)
    assert loaded.recurrent
    batch = played(env, live)
    assert_acts_as(loaded, batch, loaded.interface.groups)


def save(live: Any, env: Any, path: Any) -> Any:
    recorder = PolicyRecorder(path, live, env)
    recorder.save(Progress(frames=0, optim_steps=0, seconds=1.0))
    return load_policy(path / f"step_{0:012d}", trust=True)


def played(env: Any, live: Any) -> Any:
    collector = VectorCollector(
        env,
        live,
        num_envs=2,
        frames_per_batch=40,
        exploration_type=InteractionType.DETERMINISTIC,
        seed=1,
    )
    batch = collector.collect()
    collector.shutdown()
    return batch


def assert_acts_as(loaded: Any, batch: Any, groups: Any) -> None:
    """Given the agents that act alone, it acts as the policy that collected."""
    for env in range(len(batch)):
        for t in range(batch.shape[1]):
            row = batch[env, t]
            if row["is_init"]:
                loaded.reset()
            seen, expected = {}, {}
            for group in groups:
                part = row[group.name]
                for place, agent in enumerate(group.agents):
                    if part["mask"][place]:
                        expected[agent] = part["action"][place]
                        seen[agent] = one = part["observation"][place].numpy()
                        if "action_mask" in part.keys():  # noqa: SIM118 - of a TensorDict
                            mask = part["action_mask"][place].numpy()
                            seen[agent] = {"observation": one, "action_mask": mask}
            found = {agent: torch.as_tensor(action) for agent, action in loaded(seen).items()}
            torch.testing.assert_close(found, expected)


# -- Turns, and self-play.


def test_who_waits_for_its_turn_remembers_its_own_turns(tmp_path):
    trainer = make("ippo", "gru", TIC_TAC_TOE)
    live = trainer.registry.modules["evaluate"].policy
    live.policies["agents"].network.network[-1].weight.data *= 100  # which prefers something
    batch = played(TIC_TAC_TOE, live)
    waits = ~batch["agents", "mask"]
    now, then = (part["agents", "memory", "h"] for part in (batch, batch["next"]))
    assert waits.any()
    stays = waits & ~batch["is_init"]
    torch.testing.assert_close(then[stays], now[stays], rtol=0, atol=0)
    assert (then[~waits] != now[~waits]).any()
    loaded = save(live, TIC_TAC_TOE, tmp_path)
    assert_acts_as(loaded, batch, loaded.interface.groups)
    trainer.shutdown()


def test_past_policies_remember_for_themselves():
    policy = AgentsPolicy(policies([("agents", 2, 3)]))
    seats = SelfPlayPolicy(policy, "agents", 2, size=1, probability=1.0)
    seats.add()
    for parameter in policy.parameters():
        parameter.data.add_(0.5)
    seen = {
        ("agents", "observation"): torch.randn(6, 2, 5),
        ("agents", "mask"): torch.ones(6, 2, dtype=torch.bool),
        "is_init": torch.zeros(6, 1, dtype=torch.bool),
        ("agents", "memory", "h"): torch.randn(6, 2, 8),
        ("agents", "action_mask"): torch.ones(6, 2, 3, dtype=torch.bool),
    }
    players = torch.tensor([[-1, 0], [0, -1], [-1, -1]] * 2)
    out = seats.act(*(seen[key] for key in policy.in_keys), seen["is_init"], players)
    key = ("next", "agents", "memory", "h")
    own, past = (
        each.act(*(seen[key] for key in policy.in_keys)) for each in (policy, seats.pool[0])
    )
    expected = torch.where((players < 0).unsqueeze(-1), own[key], past[key])
    torch.testing.assert_close(out[key], expected)
    assert not torch.allclose(own[key], past[key])


@pytest.mark.slow
def test_self_play_with_memories_resumes(tmp_path):
    options = {"self_play": 2, "self_play_interval": 100, "eval_episodes": 4, "anneal_lr": False}
    run = partial(make, "ippo", "gru", TIC_TAC_TOE, save_interval=64, **options)
    whole, _ = assert_resumed_is_whole(run, tmp_path, 480, 320)
    assert -1 <= whole.metrics.reported["random/return"] <= 1


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("mappo", {"sequence_length": 7}, "sequence_length=7 has to divide steps_per_batch=20"),
        ("mappo", {"memory": None, "memory_size": 8}, "memory_size=8 has no effect without"),
        ("qmix", {"batch_size": 20}, "sequence_length=8 has to divide batch_size=20"),
        ("masac", {"env": MOVING, "burn_in": 8}, "sequence_length=8 has to .* be above burn_in=8"),
        (
            "mappo",
            {"self_play": 2, "env": TIC_TAC_TOE},
            "self_play=2 and memory='gru' do not work together.* train with ippo",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(name, options, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        make(name, **options)
    assert "\n" not in str(refused.value)


# -- Learning.

ON_POLICY = {
    "lr": 1e-2,
    "num_envs": 16,
    "mini_batch_size": 80,
    "num_epochs": 5,
    "sequence_length": 20,
}
MIXED = {
    "lr": 5e-3,
    "total_frames": 12_800,
    "num_envs": 16,
    "steps_per_batch": 10,
    "init_random_frames": 400,
    "annealing_frames": 4_000,
    "batch_size": 160,
    "sequence_length": 10,
    "burn_in": 0,
    "buffer_size": 100_000,
    "target_interval": 50,
    "optim_steps_per_batch": 16,
}


MOVED = {k: v for k, v in MIXED.items() if k not in ("annealing_frames", "target_interval")}
MOVED |= {"lr": 3e-3, "tau": 0.02, "env": MOVING}


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("mappo", ON_POLICY), ("vdn", MIXED), ("maddpg", MOVED), ("masac", MOVED)],
)
def test_only_with_a_memory_agents_recall(name, options):
    given = {"total_frames": 6_400, "num_cells": (32,), "eval_episodes": 200, "seed": 0} | options
    given |= {"eval_interval": 10**9, "memory_size": 32}
    found = {}
    for memory in ("gru", None) if name in ("mappo", "maddpg") else ("gru",):  # once a world
        given = {k: v for k, v in given.items() if k not in in_vain(memory)}
        trainer = make(name, memory, **given)
        trainer.train()
        found[memory] = trainer.metrics.reported["eval/return"]
    assert found["gru"] > 5.2  # of 5.45
    assert found.get(None, 0) < 3.2  # a third, and the first step
