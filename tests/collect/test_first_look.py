"""What an environment's space does not say is refused where an episode begins, in one line."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from toy_envs import VectorCounter

from hooktrainer import VectorCollector
from hooktrainer.collect.make_envs import spaces_of
from hooktrainer.errors import ConfigError


class Says(gym.Env):
    """Returns what it is told to, at resets and steps; its episodes have three steps."""

    def __init__(self, space, value, *, later=None, action_space=None):
        self.observation_space = space
        self.action_space = action_space or spaces.Discrete(3)
        self.value, self.later = value, value if later is None else later
        self.mask = self.later_mask = None

    def __str__(self):
        return "Says"

    def _info(self, mask):
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.value, self._info(self.mask)

    def step(self, action):
        self.count += 1
        ends = self.count == 3
        return self.later, 0.0, ends, False, self._info(self.later_mask)


def collect(make, **kwargs):
    collector = VectorCollector([make, make], frames_per_batch=8, restore_episodes=False, **kwargs)
    try:
        return collector.collect()
    finally:
        collector.shutdown()


def masked(mask, later_mask=None, action_space=None):
    def make():
        env = Says(spaces.Box(-1, 1, (2,)), np.zeros(2, np.float32), action_space=action_space)
        env.mask, env.later_mask = mask, mask if later_mask is None else later_mask
        return env

    return make


def refused(make, match, **kwargs):
    with pytest.raises(ConfigError, match=match) as caught:
        collect(make, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


BOX = spaces.Box(-1, 1, (3,))
BYTES = spaces.Box(0, 255, (2, 2), np.uint8)
PARTS = spaces.Dict(a=BOX, b=spaces.Discrete(3))


@pytest.mark.parametrize(
    ("space", "value", "match"),
    [
        (spaces.Discrete(3), 7, r"the observation of Says is 7, .*; its space is Discrete\(3\)"),
        (spaces.Discrete(3, start=5), 0, "is 0, int64, which is outside of it"),
        (spaces.Discrete(3, start=5), 8, "is 8, int64, which is outside of it"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), r"is \[1 3\], int64, which is outside"),
        (spaces.MultiDiscrete([2, 3], start=[1, 1]), np.array([0, 1]), "outside of it"),
        (spaces.Discrete(3), 1.0, "is 1.0, float64, which is outside of it"),
        (BYTES, np.zeros((2, 2), np.float32), "float32, which is outside of it"),
        (BYTES, np.full((2, 2), 300), "outside of it"),
        (BOX, np.float32(0), r"has the shape \[\], not \[3\]; its space is Box"),
        (BOX, np.zeros(1, np.float32), r"has the shape \[1\], not \[3\]"),
        (BOX, np.zeros((1, 3), np.float32), r"has the shape \[1, 3\], not \[3\]"),
        (BOX, np.zeros(4, np.float32), r"has the shape \[4\], not \[3\]"),
        (spaces.Discrete(3), np.array([1]), r"has the shape \[1\], not \[\]"),
        (BOX, np.array(["x"] * 3), "which holds no numbers"),
        (PARTS, {"a": np.zeros(3, np.float32), "b": 3}, r"observation\['b'\] of Says is 3"),
    ],
)
def test_what_cannot_be_meant_is_refused(space, value, match):
    refused(lambda: Says(space, value), match)


def test_of_vector_environments_too():
    class Wrong(VectorCounter):
        def _observe(self):
            return super()._observe()[:, :1]

    with pytest.raises(ConfigError, match=r"has the shape \[2, 1\], not \[2, 2\]"):
        VectorCollector(Wrong(2), frames_per_batch=8, restore_episodes=False).collect()
    env = SyncVectorEnv([lambda: Says(spaces.Discrete(3), 7)] * 2)
    with pytest.raises(ConfigError, match="is 7, int64, which is outside of it"):
        VectorCollector(env, frames_per_batch=8).collect()


def test_what_is_meant_is_taken():
    batch = collect(lambda: Says(spaces.Box(-1, 1, (1,)), 0.5))
    assert batch["observation"].unique().tolist() == [0.5]
    batch = collect(lambda: Says(spaces.Box(-1, 1, (3,), np.float16), np.array([0, 1, 0])))
    assert batch["observation"].dtype == torch.float32
    batch = collect(lambda: Says(BYTES, np.full((2, 2), 255)))
    assert batch["observation"].unique().tolist() == [255]
    batch = collect(lambda: Says(spaces.Discrete(3, start=5), 7))
    assert batch["observation"].unique().tolist() == [2]


@pytest.mark.parametrize(
    ("mask", "match"),
    [
        (True, r"info\['action_mask'\] has the shape \[\]; the actions need .* \[3\]"),
        (np.ones((3, 1), bool), r"has the shape \[3, 1\]; the actions need"),
        (np.ones(2, bool), r"has the shape \[2\]; the actions need"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, match):
    refused(masked(mask), match)


def test_masks_among_the_observations_too():
    space = spaces.Dict(o=BOX, action_mask=spaces.Box(0, 1, (), np.int8))
    refused(lambda: Says(space, {}), r"observation\['action_mask'\] has the shape \[\]; the act")
    space = spaces.Dict(o=BOX, action_mask=spaces.MultiBinary(3))
    value = {"o": np.zeros(3, np.float32), "action_mask": True}
    refused(lambda: Says(space, value), r"\['action_mask'\] of Says has the shape \[\], not \[3\]")


def test_masks_of_other_kinds_are_taken():
    actions = spaces.MultiDiscrete([2, 3])
    each = (np.array([0, 1], np.int8), np.array([0, 1, 0], np.int8))
    batch = collect(masked(each, action_space=actions))
    assert batch["action_mask"][0, 0].tolist() == [False, True, False, True, False]
    assert batch["action"].flatten(0, 1).unique(dim=0).tolist() == [[1, 1]]
    assert spaces_of(masked(each, action_space=actions)).mask_size == 5
    batch = collect(masked(torch.tensor([False, True, False])))
    assert batch["action"].unique().tolist() == [1]
    refused(
        masked(np.ones((2, 3), bool), action_space=spaces.MultiDiscrete([3, 3])),
        r"has the shape \[2, 3\]; the actions need one array of the shape \[6\]",
    )


TAKEN = "action reward advantage value_target state_value action_log_prob index td_error"


@pytest.mark.parametrize("key", [*TAKEN.split(), "priority_weight", "episode_reward", "info"])
def test_keys_that_learners_write_are_taken(key):
    def make():
        return Says(spaces.Dict({key: BOX}), {key: np.zeros(3, np.float32)})

    refused(make, f"the key '{key}', which the batch needs for itself")


@pytest.mark.parametrize(
    "space",
    [spaces.Dict({}), spaces.Box(-1, 1, (0,)), spaces.Dict(a=BOX, b=spaces.Box(-1, 1, (0,)))],
)
def test_empty_observations_are_refused(space):
    refused(lambda: Says(space, space.sample()), "is empty")
