"""Groups of agents: which there are by default, which can be given, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from hooktrainer import ConfigError
from hooktrainer.collect.agent_groups import group_agents

BOX = spaces.Box(-1, 1, (3,), np.float32)
TWO, FIVE = spaces.Discrete(2), spaces.Discrete(5)
HUNT = {"wolf_0": (BOX, FIVE), "wolf_1": (BOX, FIVE), "sheep_0": (BOX, TWO)}


@pytest.mark.parametrize(
    ("agents", "given", "wanted"),
    [
        (HUNT, None, {"wolf": ("wolf_0", "wolf_1"), "sheep": ("sheep_0",)}),
        ({"left": (BOX, TWO), "right": (BOX, TWO)}, None, {"agents": ("left", "right")}),
        (
            {"a_0": (BOX, TWO), "a_1": (BOX, FIVE), "state_0": (FIVE, FIVE)},
            None,
            {"a": ("a_0",), "a_2": ("a_1",), "state_2": ("state_0",)},
        ),
        (
            {"train_0": (BOX, TWO), "values": (BOX, FIVE), "a/b.c_1": (FIVE, FIVE)},
            None,
            {"train_2": ("train_0",), "values_2": ("values",), "a_b_c": ("a/b.c_1",)},
        ),
        ({0: (BOX, TWO), 1: (BOX, FIVE)}, None, {"0": (0,), "1": (1,)}),
        (
            {"a": (BOX, TWO), "b": (BOX, TWO), "c": (BOX, TWO)},
            {"last": ["c"], "rest": ["b", "a"]},
            {"last": ("c",), "rest": ("b", "a")},
        ),
    ],
    ids=["by prefix", "one", "taken names", "of modules", "numbers", "given"],
)
def test_names_and_order(agents, given, wanted):
    groups = group_agents(agents, given)
    assert [(group.name, group.agents) for group in groups] == list(wanted.items())
    assert all(group.leaves[0].shape == (3,) for group in groups if group.observation_space == BOX)


def test_a_mask_in_the_observation_is_not_part_of_it():
    masked = spaces.Dict({"observation": BOX, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
    (group,) = group_agents({"a": (masked, TWO)})
    assert group.has_mask
    assert [leaf.key for leaf in group.leaves] == [("observation",)]
    assert group.observation_space == BOX
    masked = spaces.Dict({"x": BOX, "y": BOX, "action_mask": spaces.MultiBinary(2)})
    (group,) = group_agents({"a": (masked, TWO)})
    assert [leaf.key for leaf in group.leaves] == [("x",), ("y",)]


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ({"all": list(HUNT)}, "the agents of 'all' have different spaces"),
        (
            {"wolf": ["wolf_0", "wolf_1"]},
            "each of the agents wolf_0, wolf_1, sheep_0 has to be in one",
        ),
        ({"a": ["wolf_0", "wolf_1"], "b": ["wolf_1"], "c": ["sheep_0"]}, "has to be in one group"),
        ({"next": ["wolf_0"]}, "a group cannot be called 'next'"),
        ({"train": ["wolf_0"]}, "a group cannot be called 'train'"),
        ({"a.b": ["wolf_0"]}, "a group cannot be called 'a.b'"),
        ({"a": [], "b": list(HUNT)}, "has to be in one group"),
    ],
)
def test_invalid_groups_are_refused(groups, problem):
    with pytest.raises(ConfigError, match=problem):
        group_agents(HUNT, groups)


def test_a_space_without_a_tensor_form_is_refused():
    with pytest.raises(ConfigError, match="has no tensor form"):
        group_agents({"a": (BOX, spaces.Text(3))})


@pytest.mark.parametrize("key", ["mask", "learned", "learner"])
def test_an_observation_with_the_key_of_another_entry_is_refused(key):
    with pytest.raises(ConfigError, match=f"the agents of 'agents' observe '{key}', which batches"):
        group_agents({"a": (spaces.Dict({key: BOX, "place": BOX}), TWO)})
