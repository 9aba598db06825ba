"""Saved policies of several agents act as those in training, for any set of agents."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from marks import slow_except
from policy_envs import Leaving, pets
from sealed import change_facts, read_facts
from tensordict import TensorDict
from tensordict.nn import InteractionType
from tensordict.nn.probabilistic import set_interaction_type
from torch import nn

from hooktrainer import (
    CheckpointError,
    ConfigError,
    VectorCollector,
    load_policy,
    play_episodes,
)
from hooktrainer.collect.make_envs import agents_of
from hooktrainer.networks import (
    AgentsPolicy,
    CategoricalPolicy,
    DiagonalGaussianPolicy,
    Policy,
    distribution_for,
    mlp,
)
from hooktrainer.policies import Environment, episode_seed, evaluate_policy, evaluate_run

SPREAD, TAG = "pettingzoo/mpe/simple_spread_v3", "pettingzoo/mpe/simple_tag_v3"


def collected(env, policy, **options) -> TensorDict:
    collector = VectorCollector(
        env,
        policy,
        num_envs=3,
        frames_per_batch=30,
        exploration_type=InteractionType.DETERMINISTIC,
        **options,
    )
    batch = collector.collect()
    collector.shutdown()
    return batch


def of_agent(batch: TensorDict, groups: dict[str, list[str]], key: str, row: int, time: int):
    """By the name of an agent that is there, its part of an entry."""
    return {
        agent: batch[group, key][row, time, place].numpy()
        for group, agents in groups.items()
        for place, agent in enumerate(agents)
        if bool(batch[group, "mask"][row, time, place])
    }


PETS = {"cat": ["cat_0", "cat_1"], "dog": ["dog_0"]}


@pytest.mark.parametrize(("masks", "own"), [("", False), ("info", True), ("observation", False)])
def test_they_act_as_in_the_collector(masks, own, save):
    policy = pets(bool(masks), own)
    loaded = load_policy(save(policy, partial(Leaving, masks=masks)), trust=True)
    batch = collected(partial(Leaving, masks=masks), policy)
    again = loaded(batch.select(*policy.in_keys))
    for group in PETS:
        theirs = batch[group, "action"]
        torch.testing.assert_close(again[group, "action"], theirs)
    for row, time in ((0, 0), (1, 2), (2, 3)):  # all are there, one has left, two have
        seen = of_agent(batch, PETS, "observation", row, time)
        allowed = of_agent(batch, {"cat": PETS["cat"]}, "action_mask", row, time) if masks else {}
        if masks == "observation":
            for agent, mask in allowed.items():
                seen[agent] = {"observation": seen[agent], "action_mask": mask}
        actions = loaded(seen, allowed if masks == "info" else None)
        expected = of_agent(batch, PETS, "action", row, time)
        assert actions.keys() == seen.keys()
        for agent, action in actions.items():
            shifted = 1 if agent != "dog_0" else 0  # Discrete(4, start=1)
            limit = np.clip(expected[agent], -1, 1) if not shifted else expected[agent] + 1
            np.testing.assert_allclose(action, limit, rtol=1e-5)
            assert Leaving().action_space(agent).contains(action)


def test_a_tensordict_may_have_any_batch_and_keeps_its_other_entries(save):
    policy = pets()
    loaded = load_policy(save(policy, Leaving), trust=True)
    for batch in ([], [4], [2, 3]):
        data = TensorDict(
            cat=TensorDict(observation=torch.randn(*batch, 2, 2), batch_size=[*batch, 2]),
            dog=TensorDict(observation=torch.randn(*batch, 1, 2), batch_size=[*batch, 1]),
            other=torch.zeros(*batch, 3),
            batch_size=batch,
        )
        with set_interaction_type(InteractionType.DETERMINISTIC):
            expected = policy(data.clone())
        out = loaded(data)
        assert out is data
        assert out["other"].shape == (*batch, 3)
        for group in PETS:
            torch.testing.assert_close(out[group, "action"], expected[group, "action"])


def test_what_is_drawn_follows_from_the_seed_and_obeys_masks(save):
    path = save(pets(masked=True), partial(Leaving, masks="info"))
    seen = {agent: np.zeros((200, 2)) for agent in Leaving.possible_agents}
    allowed = np.zeros((200, 4), bool)
    allowed[:, 1:3] = True
    masks = {"cat_0": allowed, "cat_1": allowed}
    first = load_policy(path, deterministic=False, seed=7, trust=True)(seen, masks)
    second = load_policy(path, deterministic=False, seed=7, trust=True)(seen, masks)
    other = load_policy(path, deterministic=False, seed=8, trust=True)(seen, masks)
    for agent in seen:
        np.testing.assert_array_equal(first[agent], second[agent])
        assert (first[agent] != other[agent]).any()
    assert set(first["cat_0"]) == {2, 3}  # which count from 1
    assert (first["cat_0"] != first["cat_1"]).any()  # they draw for themselves


def test_returns_are_the_mean_over_all_agents_by_hand(save):
    class Second(torch.nn.Module):
        in_keys = [("cat", "observation"), ("dog", "observation")]  # noqa: RUF012
        out_keys = [("cat", "action"), ("dog", "action")]  # noqa: RUF012

        def act(self, cats, dogs):
            second = torch.ones(cats.shape[:2], dtype=torch.int64)
            return {("cat", "action"): second, ("dog", "action"): dogs[..., :1] * 0 + 9}

    loaded = load_policy(save(Second(), Leaving), trust=True)
    (episode,) = play_episodes(loaded, episodes=1)
    # Rewards 10 a + 2 of the cats, for 2 and 3 steps, and 30 of the dog, for 4.
    assert episode.length == 4
    assert episode.return_ == pytest.approx((2 * 12 + 3 * 22 + 4 * 30) / 3)


def test_they_play_what_pettingzoo_plays(save):
    from mpe2 import simple_tag_v3

    torch.manual_seed(0)
    policies = {
        name: CategoricalPolicy(mlp(width, 5, (8,)), [(name, "observation")])
        for name, width in (("adversary", 16), ("agent", 14))
    }
    path = save(AgentsPolicy(policies), TAG)
    loaded = load_policy(path)
    assert loaded.saved.env_id == TAG
    env = simple_tag_v3.parallel_env()
    seen, _ = env.reset(seed=episode_seed(3, 1))
    total = 0.0
    while env.agents:
        seen, rewards, *_ = env.step(loaded(seen))
        total += sum(rewards.values()) / 4
    assert play_episodes(loaded, seed=3, episodes=2)[1].return_ == total
    assert play_episodes(loaded, 3, 2) == play_episodes(loaded, 3, 3, env=env)[:2]


@pytest.mark.parametrize("continuous", slow_except([True, False], True))
def test_they_play_vmas_as_it_is_collected(continuous, save):
    kwargs = {"continuous_actions": continuous, "max_steps": 7, "n_agents": 2}
    torch.manual_seed(0)
    keys = [("agents", "observation")]
    policy = AgentsPolicy(
        {
            "agents": DiagonalGaussianPolicy(mlp(16, 2, (8,)), 2, in_keys=keys)
            if continuous
            else CategoricalPolicy(mlp(16, 9, (8,)), keys)
        }
    )
    path = save(policy, "vmas/balance", env_kwargs=kwargs)
    saved = evaluate_policy(path, seed=4, episodes=2)
    assert saved.evaluation.lengths == (7, 7)
    world = agents_of("vmas/balance", kwargs).world
    for number, return_ in enumerate(saved.evaluation.returns):
        world.seed(episode_seed(4, number))
        entries, total, done = world.begin(), 0.0, False
        while not done:
            with set_interaction_type(InteractionType.DETERMINISTIC):
                action = policy.act(entries[keys[0]])["agents", "action"]
            entries, terminated, truncated, rewards = world.advance({"agents": action})
            done = bool(terminated | truncated)
            total += float(rewards["agents", "reward"].mean())
        assert return_ == pytest.approx(total, rel=1e-4)
    assert play_episodes(load_policy(path), 4, 2)[1].return_ == saved.evaluation.returns[1]


class Seeing(nn.Module):
    """Each agent sees what it observes, and the state of the whole."""

    def __init__(self, outputs):
        super().__init__()
        self.layers = mlp(2 + 3, outputs, (8,))

    def forward(self, observation, state):
        whole = state.unsqueeze(-2).expand(*observation.shape[:-1], -1)
        return self.layers(torch.cat([observation, whole], -1))


def test_policies_may_read_the_state_of_the_whole(save):
    torch.manual_seed(1)
    space = Leaving().action_space("dog_0")
    cats = CategoricalPolicy(Seeing(4), [("cat", "observation"), "state"])
    dogs = Policy(Seeing(1), distribution_for(space), [("dog", "observation"), "state"])
    policy = AgentsPolicy({"cat": cats, "dog": dogs})
    loaded = load_policy(save(policy, Leaving), trust=True)
    assert "state: float32[3]" in loaded.interface.reads
    batch = collected(Leaving, policy)
    again = loaded(batch.select(*policy.in_keys))
    for group in PETS:
        torch.testing.assert_close(again[group, "action"], batch[group, "action"])
    for row, time in ((0, 0), (1, 2)):
        seen = of_agent(batch, PETS, "observation", row, time)
        actions = loaded(seen, state=batch["state"][row, time].numpy())
        expected = of_agent(batch, PETS, "action", row, time)
        assert all(actions[cat] == expected[cat] + 1 for cat in actions if cat != "dog_0")
    many = loaded({"dog_0": np.zeros((5, 2))}, state=np.zeros((5, 3)))
    assert many["dog_0"].shape == (5, 1)
    assert len(play_episodes(loaded, episodes=2)) == 2
    with pytest.raises(ConfigError, match=r"read the state of the whole environment: pass state="):
        loaded(seen)
    with pytest.raises(ConfigError, match=r"state has shape \[2\]; the policy needs \[3\]"):
        loaded(seen, state=np.zeros(2))


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (np.zeros(2), "act for several agents: pass a dict of what each of cat_0, cat_1, dog_0"),
        ({"fish_0": np.zeros(2)}, "know no agent 'fish_0'; theirs are cat_0, cat_1, dog_0"),
        ({"cat_1": np.zeros(3)}, r"observation of cat_1 has shape \[3\]; the policy needs \[2\]"),
        (
            {"cat_0": np.zeros(2), "dog_0": np.zeros((4, 2))},
            "observation of cat_0 is a single one, observation of dog_0 is a batch of 4",
        ),
        (
            TensorDict(cat={"observation": torch.zeros(3, 1, 2)}, batch_size=[3]),
            r"\('cat', 'observation'\) has shape \[3, 1, 2\]; the policies need \[3, 2, 2\]",
        ),
    ],
)
def test_what_does_not_fit_is_named(seen, problem, copy):
    loaded = load_policy(copy(pets, Leaving), trust=True)
    with pytest.raises(ConfigError, match=problem):
        loaded(seen)


def test_actions_of_another_shape_are_named(save):
    class Few(torch.nn.Module):
        in_keys = [("cat", "observation")]  # noqa: RUF012
        out_keys = [("cat", "action"), ("dog", "action")]  # noqa: RUF012

        def act(self, cats):
            whole = torch.zeros(len(cats), dtype=torch.int64)
            return {("cat", "action"): whole, ("dog", "action"): whole}

    with pytest.raises(CheckpointError, match=r"of cat is .*\[1\]; .* needs indices \[1, 2\]"):
        load_policy(save(Few(), Leaving))


# -- trust -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "needs"),
    [
        ({"id": "pettingzoo/mpe/os.path_v3"}, "the module of pettingzoo/mpe/os.path_v3"),
        ({"id": "os/system/x_v3"}, "the module of os/system/x_v3"),
        ({"id": SPREAD, "kwargs": {"name": "a/b"}}, "the argument name='a/b'"),
        ({"factory": "Leaving", "module": "toy_parallel"}, "Leaving of the module toy_parallel"),
    ],
)
def test_what_needs_code_needs_trust(environment, needs, copy):
    path = copy(pets, Leaving)
    empty = Environment(several=True).encode()
    change_facts(path, env={**empty, **environment})
    with pytest.raises(ConfigError, match=f"needs {needs}.* which may do anything"):
        load_policy(path).make_env()
    ((_, error),) = evaluate_run(path.parents[1], episodes=1)
    assert "which may do anything" in str(error)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda i: i["groups"].clear(), "0 agents"),
        (lambda i: i["groups"][0]["agents"].append("dog_0"), "one name"),
        (
            lambda i: i["groups"][0]["agents"].append("cat_9"),
            "does not fit|cannot be calculated|for each",
        ),
        (lambda i: i["inputs"][0].update(group="fish"), "'fish' is no group"),
        (lambda i: i["inputs"].clear(), "nothing is read"),
        (lambda i: i["inputs"][0].update(keys="observation"), "is no tuple"),
    ],
)
def test_an_interface_that_cannot_be_is_damage(change, problem, copy):
    path = copy(pets, Leaving)
    interface = read_facts(path)["interface"]
    change(interface)
    change_facts(path, interface=interface)
    with pytest.raises(CheckpointError, match=problem):
        load_policy(path)
