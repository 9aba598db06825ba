"""How actions get to a tensor world, at random too, and what it says beside observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toy_worlds import Ladder, Talker

from hooktrainer import VectorCollector
from hooktrainer.collect.action_format import action_format_of
from hooktrainer.collect.worlds import FunctionalWorld
from hooktrainer.errors import ConfigError


class Taken(FunctionalWorld):
    """Shows the action that was taken, of the space that it is made with."""

    max_episode_steps = 10

    def __init__(self, num_envs, space, mask=None, **options):
        width = max(1, int(np.prod(space.shape or ())))
        self.name, self.action_space, self.mask = "taken", space, mask
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,))
        if mask is not None:
            masks = spaces.Box(0, 1, (len(mask),), np.int8)
            self.observation_space = spaces.Dict(
                {"o": self.observation_space, "action_mask": masks}
            )
        super().__init__(num_envs, **options)

    def initial(self, uniform):
        return torch.zeros(len(uniform), *(self.action_space.shape or ()))

    def transition(self, state, action):
        reward = torch.zeros(len(action))
        return action.to(torch.float32), reward, reward.bool()

    def observe(self, state):
        state = state.reshape(len(state), -1)
        if self.mask is None:
            return state
        return {"o": state, "action_mask": torch.tensor(self.mask).expand(len(state), -1)}


def drawn(space: spaces.Space, number: int = 4000, mask=None, categorical: bool = True):
    """Random actions as a policy writes them, and as the environments took them."""
    options = {"space": space, "mask": mask}
    batch = VectorCollector(
        Taken,
        num_envs=number,
        frames_per_batch=number,
        env_kwargs=options,
        categorical_actions=categorical,
    ).collect()
    seen = batch["next", "observation" if mask is None else "o"]
    return batch["action"].squeeze(1), seen.reshape(number, *(space.shape or ()))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 4]),
        spaces.MultiDiscrete([2, 4], start=[3, 1]),
        spaces.MultiBinary(3),
        spaces.Box(-1.0, 3.0, (2, 2)),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(np.array([10, -np.inf]), np.array([np.inf, 5]), dtype=np.float64),
    ],
)
@pytest.mark.parametrize("categorical", [True, False])
def test_random_actions_are_in_the_space_and_fill_it(space, categorical):
    taken = drawn(space, categorical=categorical)[1].numpy()
    assert all(space.contains(each.astype(space.dtype)) for each in taken)
    space.seed(0)
    theirs = np.stack([space.sample() for _ in range(4000)])
    assert np.abs(taken.mean(0) - theirs.mean(0)).max() < 0.1
    assert np.abs(taken.std(0) - theirs.std(0)).max() < 0.1


def test_one_hot_vectors_and_masks():
    found, taken = drawn(spaces.Discrete(3, start=5), mask=[True, False, True], categorical=False)
    assert found.shape == (4000, 3)
    assert (found.sum(-1) == 1).all()
    assert sorted(taken.unique().tolist()) == [5, 7]


def test_random_actions_obey_the_masks_and_count_from_the_spaces_start():
    batch = VectorCollector(Talker, num_envs=8, frames_per_batch=160).collect()
    assert sorted(batch["action"].unique().tolist()) == [0, 2]
    assert sorted(batch["next", "last"].unique().tolist()) == [1, 3]
    assert batch["action_mask"].dtype is torch.bool


def test_numbers_for_each_environment_are_in_the_batch():
    collector = VectorCollector(
        Talker, num_envs=3, frames_per_batch=6, info_keys=("height", "rank")
    )
    following = collector.collect()["next"]
    assert torch.equal(following["height"], following["reward"] + 0.5)
    assert following["rank"][:, 0, 0].tolist() == [0, 1, 2]
    assert following["rank"].dtype is torch.float32
    said = collector.log_of_world()
    assert float(said["world/rank"]) == 1.0
    assert float(said["Episode/slips"]) == pytest.approx(float(following["reward"].mean()))


def test_missing_log_entries_are_nan_and_other_shapes_refused():
    options = {"num_envs": 3, "frames_per_batch": 6}
    batch = VectorCollector(Talker, info_keys=("nothing",), **options).collect()
    assert batch["next", "nothing"].isnan().all()
    with pytest.raises(
        ConfigError, match=r"'Episode/slips'\] of the simulator has the shape \[\], not one"
    ):
        VectorCollector(Talker, info_keys=("Episode/slips",), **options).collect()


class Count(Ladder):
    """Shows the rung as a discrete value, from 5 on, and pairs that count from 2 and 3."""

    observation_space = spaces.Dict(
        {"rung": spaces.Discrete(5, start=5), "pair": spaces.MultiDiscrete([5, 5], start=[2, 3])}
    )

    def observe(self, state):
        rung = state.squeeze(-1).long()
        return {"rung": rung + 5, "pair": torch.stack([rung + 2, rung + 3], -1)}


def test_discrete_observations_count_from_zero():
    batch = VectorCollector(Count, num_envs=1, frames_per_batch=6).collect()
    assert batch["rung"].dtype is torch.int64
    assert batch["rung"].flatten().tolist() == [0, 1, 2, 3, 0, 1]
    assert batch["next", "rung"].flatten().tolist() == [1, 2, 3, 4, 1, 2]
    assert torch.equal(batch["pair"], batch["rung"].unsqueeze(-1).expand(1, 6, 2))


def test_joint_actions_are_handed_out_in_the_order_of_the_environments():
    space = spaces.Dict(move=spaces.Box(-9, 9, (2,)), shoot=spaces.Discrete(3, start=1))
    first, second = action_format_of(space).each(np.array([[1, 2, 0], [3, 4, 2]], np.float32))
    assert (first["move"].tolist(), first["shoot"]) == ([1, 2], 1)
    assert (second["move"].tolist(), second["shoot"]) == ([3, 4], 3)
