"""``EnvBase`` of TorchRL with a batch size: its specs as spaces, its steps as outcomes."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torchrl.data import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    OneHot,
    Unbounded,
)
from torchrl.envs import (
    Compose,
    EnvBase,
    GymEnv,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
    VecGymEnvTransform,
    VmasEnv,
)

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect.worlds import TorchRLWorld, adapt_world
from hooktrainer.testing import check_collector

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Climb(EnvBase):
    """Climbs by 1 or not at all; terminates at 3; what it observes has several parts."""

    def __init__(self, action=None, num_envs=2):
        super().__init__(batch_size=(num_envs,), device="cpu")
        size = (num_envs,)
        self.action_spec = action or OneHot(2, shape=(*size, 2))
        self.observation_spec = Composite(
            observation=Unbounded((*size, 1)),
            level=Categorical(4, shape=size),
            bits=Binary(3, shape=(*size, 3), dtype=torch.bool),
            info=Composite(height=Unbounded((*size, 1)), shape=size),
            shape=size,
        )
        self.reward_spec = Unbounded((*size, 1))
        self.at = torch.zeros(*size, 1)
        self.seeds = []

    def observe(self):
        n = len(self.at)
        return {
            "observation": self.at.clone(),
            "level": self.at.squeeze(-1).long().clamp(max=3),
            "bits": torch.zeros(n, 3, dtype=torch.bool),
            "info": TensorDict({"height": 2 * self.at}, (n,)),
        }

    def _reset(self, tensordict=None):
        done = None if tensordict is None else tensordict.get("_reset", None)
        rows = torch.ones_like(self.at, dtype=torch.bool) if done is None else done
        self.at = torch.where(rows, 0.0, self.at)
        return TensorDict(self.observe(), self.batch_size)

    def _step(self, tensordict):
        self.at = self.at + tensordict["action"].long().argmax(-1, keepdim=True)
        ended = self.at >= 3
        said = {"reward": self.at.clone(), "done": ended, "terminated": ended}
        return TensorDict({**self.observe(), **said}, self.batch_size)

    def _set_seed(self, seed):
        self.seeds.append(seed)


def test_specs_become_spaces_and_infos_the_log():
    world = adapt_world(Climb())
    assert isinstance(world, TorchRLWorld)
    assert world.action_space == spaces.Discrete(2)
    assert world.observation_space["level"] == spaces.Discrete(4)
    assert world.observation_space["bits"] == spaces.MultiBinary([3])
    assert set(world.reset()) == {"observation", "level", "bits"}
    out = world.step(torch.tensor([1, 0]))
    assert out.log["info/height"].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("spec", "space"),
    [
        (Categorical(5, shape=(2,)), spaces.Discrete(5)),
        (MultiCategorical([2, 3], shape=(2, 2)), spaces.MultiDiscrete([2, 3])),
        (Bounded(-2, 2, shape=(2, 3)), spaces.Box(-2, 2, (3,))),
        (Unbounded((2, 3)), spaces.Box(-float("inf"), float("inf"), (3,))),
    ],
)
def test_actions_of_every_kind_are_taken(spec, space):
    assert adapt_world(Climb(spec)).action_space == space


def test_true_final_observations_and_ends_are_taken():
    world = adapt_world(TransformedEnv(Climb(), StepCounter(max_steps=4)))
    world.seed(0)
    world.reset()
    seen = [world.step(torch.tensor([1, 0])) for _ in range(4)]
    assert [out.final["observation"][0].item() for out in seen] == [1, 2, 3, 1]
    assert [out.observation["observation"][0].item() for out in seen] == [1, 2, 0, 1]
    assert [out.reward.tolist() for out in seen] == [[1, 0], [2, 0], [3, 0], [1, 0]]
    assert [out.terminated.tolist() for out in seen] == [[t == 2, False] for t in range(4)]
    assert [out.truncated.tolist() for out in seen] == [[False, t == 3] for t in range(4)]


class Floors(Climb):
    """Observes its level one-hot and as a column."""

    def __init__(self):
        super().__init__()
        one_hot, column = OneHot(4, shape=(2, 4)), Categorical(4, shape=(2, 1))
        self.observation_spec = Composite(one_hot=one_hot, column=column, shape=(2,))

    def observe(self):
        level = self.at.long()
        return {"one_hot": torch.eye(4, dtype=torch.bool)[level.squeeze(-1)], "column": level}


def test_categories_are_indices_in_each_of_their_forms():
    collector = VectorCollector(Floors(), frames_per_batch=4)
    batch = collector.collect()
    level = (batch["next", "reward"].squeeze(-1)).long()
    assert batch["next", "one_hot"].equal(level)
    assert batch["next", "column"].equal(level)
    collector.shutdown()


def test_what_collectors_count_themselves_is_not_observed():
    transforms = Compose(InitTracker(), StepCounter(max_steps=2), RewardSum())
    collector = VectorCollector(TransformedEnv(Climb(), transforms), frames_per_batch=8)
    batch = collector.collect()
    assert batch["next", "step_count"].squeeze(-1).tolist() == [[1, 2, 1, 2]] * 2
    sums = batch["next", "reward"].squeeze(-1).unflatten(-1, (2, 2)).cumsum(-1).flatten(1)
    assert batch["next", "episode_reward"].squeeze(-1).equal(sums)
    assert not {"episode_reward", "step_count", "is_init"} & {*batch.keys()}
    collector.shutdown()


def test_a_function_without_the_number_of_environments_is_named():
    with pytest.raises(ConfigError, match=r"give the function .* a parameter num_envs"):
        VectorCollector(lambda: Climb(), num_envs=2, frames_per_batch=4)


def test_the_contract_of_collectors_is_kept():
    check_collector(lambda: VectorCollector(Climb(), frames_per_batch=12, total_frames=60))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        # Its observation at an end is all zeros, and a step of reward 0 follows it.
        (lambda: TransformedEnv(Climb(), VecGymEnvTransform()), "give Gymnasium's itself, or Ser"),
        (lambda: GymEnv("CartPole-v1"), r"GymEnv has the batch size \[\]"),
        (lambda: VmasEnv("waterfall", num_envs=3), r"VmasEnv has .* \[3\].*mappo or ippo"),
    ],
    ids=["a vector environment", "one without a batch", "several agents"],
)
def test_what_is_not_taken_through_torchrl_is_refused(make, problem):
    with pytest.raises(ConfigError, match=problem):
        adapt_world(make())
