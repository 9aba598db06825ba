"""What a batch holds: the layout, the true final observation, statistics, spaces, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from toy_envs import Counter, Echo, Masked, Nested

from hooktrainer import ConfigError, VectorCollector


def counter(length: int = 5, **kwargs: Any) -> Callable[[], gym.Env[Any, Any]]:
    return lambda: Counter(length, **kwargs)


def test_a_batch_has_torchrl_layout() -> None:
    collector = VectorCollector(
        "CartPole-v1", num_envs=3, frames_per_batch=12, total_frames=24, traj_ids=True
    )
    batches = list(collector)
    assert [batch.shape for batch in batches] == [(3, 4), (3, 4)]
    expected = {
        "observation": ((3, 4, 4), torch.float32),
        "action": ((3, 4), torch.int64),
        "done": ((3, 4, 1), torch.bool),
        "terminated": ((3, 4, 1), torch.bool),
        "truncated": ((3, 4, 1), torch.bool),
        ("collector", "traj_ids"): ((3, 4), torch.int64),
        ("next", "observation"): ((3, 4, 4), torch.float32),
        ("next", "reward"): ((3, 4, 1), torch.float32),
        ("next", "done"): ((3, 4, 1), torch.bool),
        ("next", "terminated"): ((3, 4, 1), torch.bool),
        ("next", "truncated"): ((3, 4, 1), torch.bool),
        ("next", "episode_reward"): ((3, 4, 1), torch.float32),
        ("next", "step_count"): ((3, 4, 1), torch.int64),
    }
    batch = batches[0]
    assert set(batch.keys(True, True)) == set(expected)
    for key, (shape, dtype) in expected.items():
        assert batch[key].shape == shape
        assert batch[key].dtype == dtype
        assert batch[key].is_contiguous()
    assert collector.frames == 24
    collector.shutdown()


def test_an_episode_by_hand() -> None:
    collector = VectorCollector([counter(3, draw=False)], frames_per_batch=5, traj_ids=True)
    batch = collector.collect()[0]
    assert batch["observation"][:, 1].tolist() == [0, 1, 2, 0, 1]
    assert batch["next", "observation"][:, 1].tolist() == [1, 2, 3, 1, 2]
    assert batch["next", "reward"][:, 0].tolist() == [1, 2, 3, 1, 2]
    assert batch["next", "done"][:, 0].tolist() == [False, False, True, False, False]
    assert batch["next", "episode_reward"][:, 0].tolist() == [1, 3, 6, 1, 3]
    assert batch["next", "step_count"][:, 0].tolist() == [1, 2, 3, 1, 2]
    assert batch["collector", "traj_ids"].tolist() == [0, 0, 0, 1, 1]
    assert not batch["done"].any()
    # The episode under way goes on in the next batch.
    batch = collector.collect()[0]
    assert batch["observation"][:, 1].tolist() == [2, 0, 1, 2, 0]
    assert batch["next", "episode_reward"][:, 0].tolist() == [6, 1, 3, 6, 1]
    assert batch["next", "step_count"][:, 0].tolist() == [3, 1, 2, 3, 1]
    assert batch["collector", "traj_ids"].tolist() == [1, 2, 2, 2, 3]


@pytest.mark.parametrize("mode", [None, "sync"])
def test_the_final_observation_at_a_time_limit_is_the_true_one(mode: Any) -> None:
    collector = VectorCollector(
        "CartPole-v1",
        lambda observation: torch.arange(2) % 2,
        num_envs=2,
        frames_per_batch=16,
        env_kwargs={"max_episode_steps": 5},
        vectorization_mode=mode,
    )
    batch = collector.collect()
    assert batch["next", "truncated"][..., 0].nonzero().tolist() == [[0, 4], [1, 4]]
    assert not batch["next", "terminated"].any()
    env = gym.make("CartPole-v1", max_episode_steps=5)
    observation, _ = env.reset(seed=collector.envs.seeds(1, 0))
    for t in range(5):
        assert batch["observation"][1, t].tolist() == observation.tolist()
        observation, *_ = env.step(1)
    assert batch["next", "observation"][1, 4].tolist() == observation.tolist()
    assert batch["observation"][1, 5].abs().max() <= 0.05  # of the next episode


def test_every_kind_of_observation() -> None:
    collector = VectorCollector([Nested, Nested], frames_per_batch=8)
    batch = collector.collect()
    steps = torch.tensor([0, 1, 2, 0])
    assert batch["inner", "image"].dtype == torch.uint8
    assert (batch["inner", "image"][0, :, 0, 0] == steps).all()
    assert batch["level"][1].tolist() == steps.tolist()  # counts from 0, not from the space's 3
    assert batch["level"].dtype == torch.int64
    assert batch["pair"][0].tolist() == [[0, 4], [1, 4], [2, 4], [0, 4]]
    assert batch["switches"].shape == (2, 4, 2)
    assert batch["next", "inner", "image"][0, :, 1, 1].tolist() == [1, 2, 3, 1]
    assert batch["next", "level"][0].tolist() == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.Discrete(3), torch.tensor([2, 0]), [[2.0], [0.0]]),
        (spaces.Discrete(3, start=-1), torch.tensor([2, 0]), [[1.0], [-1.0]]),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 2], [0, 1]]), [[1, 2], [0, 1]]),
        (
            spaces.MultiDiscrete([2, 3], start=[5, 0]),
            torch.tensor([[1, 2], [0, 1]]),
            [[6, 2], [5, 1]],
        ),
        (spaces.MultiBinary(2), torch.tensor([[1, 0], [1, 1]]), [[1, 0], [1, 1]]),
        (spaces.Box(-1, 1, (2,)), torch.tensor([[0.5, 1], [-1, 0]]), [[0.5, 1], [-1, 0]]),
        (spaces.Box(-1, 1, (1,), np.float64), torch.tensor([[0.5], [-1]]), [[0.5], [-1]]),
    ],
)
def test_every_kind_of_action(
    space: gym.Space[Any], actions: torch.Tensor, expected: list[list[float]]
) -> None:
    env = lambda: Echo(space, len(expected[0]))  # noqa: E731
    batch = VectorCollector([env, env], lambda _: actions, frames_per_batch=2).collect()
    assert batch["action"].squeeze(1).tolist() == actions.tolist()
    assert batch["next", "observation"].squeeze(1).tolist() == expected


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.Discrete(3, start=1), [[0, 0, 1], [1, 0, 0]], [[3.0], [1.0]]),
        (spaces.MultiDiscrete([2, 3]), [[0, 1, 0, 0, 1], [1, 0, 0, 1, 0]], [[1, 2], [0, 1]]),
    ],
)
def test_one_hot_actions(
    space: gym.Space[Any], actions: list[list[int]], expected: list[list[float]]
) -> None:
    env = lambda: Echo(space, len(expected[0]))  # noqa: E731
    options: Any = {"frames_per_batch": 2, "categorical_actions": False}
    batch = VectorCollector([env, env], lambda _: torch.tensor(actions), **options).collect()
    assert batch["next", "observation"].squeeze(1).tolist() == expected
    drawn = VectorCollector([env, env], **options).collect()["action"]
    assert drawn.shape == (2, 1, len(actions[0]))
    assert drawn.sum() == 2 * len(expected[0])


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(10**12), 1),  # of which no table is made
        (spaces.Box(-3e38, 3e38, (3,)), 3),  # whose width is no float32
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), 3),
    ],
)
def test_random_actions_are_in_the_space(space: gym.Space[Any], size: int) -> None:
    collector = VectorCollector([lambda: Echo(space, size)] * 2, frames_per_batch=40)
    actions = collector.collect()["action"]  # Echo refuses any that is not in the space
    assert len(actions.unique()) > 1


def test_random_joint_actions_are_of_the_type_of_a_policys() -> None:
    env = Counter()
    env.action_space = spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
    batch = VectorCollector([lambda: env], frames_per_batch=5).collect()
    assert batch["action"].dtype == torch.float32


def test_an_action_mask_in_the_info() -> None:
    collector = VectorCollector([Masked, Masked], frames_per_batch=14)
    batch = collector.collect()  # Masked refuses forbidden actions
    mask, after = batch["action_mask"], batch["next", "action_mask"]
    assert mask.dtype == torch.bool
    assert mask[0].int().argmax(-1).tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert after[0].int().argmax(-1).tolist() == [1, 2, 0, 1, 2, 1, 2]  # 2: of the final state
    assert batch["action"].equal(mask.int().argmax(-1))


def test_an_action_mask_among_the_observations_is_boolean() -> None:
    class Env(Masked):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict(
                {"observation": self.observation_space, "action_mask": spaces.MultiBinary(3)}
            )

        def _observe(self) -> Any:
            mask = np.arange(3) == self.count % 3
            return {"observation": super()._observe(), "action_mask": mask.astype(np.int8)}

    batch = VectorCollector([Env], frames_per_batch=6).collect()
    assert batch["action_mask"].dtype == torch.bool
    assert batch["observation"].shape == (1, 6, 2)


@pytest.mark.parametrize("mode", [None, "sync"])
def test_frame_skip_repeats_actions_and_adds_rewards(mode: Any) -> None:
    options: Any = {
        "num_envs": 2,
        "frames_per_batch": 20,
        "vectorization_mode": mode,
        "env_kwargs": {"max_episode_steps": 7},
    }
    policy = lambda observation: (observation[:, 2] > 0).long()  # noqa: E731
    batch = VectorCollector("CartPole-v1", policy, frame_skip=3, **options).collect()
    # 7 frames: two whole transitions and one that is cut short.
    assert batch["next", "reward"][0, :3, 0].tolist() == [3, 3, 1]
    assert batch["next", "truncated"][0, :3, 0].tolist() == [False, False, True]
    assert batch["next", "episode_reward"][1, 2] == 7
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=VectorCollector("CartPole-v1", **options).envs.seeds(0, 0))
    for _ in range(3):
        observation, *_ = env.step(int(batch["action"][0, 0]))
    assert batch["next", "observation"][0, 0].tolist() == observation.tolist()


def test_an_observation_without_tensor_form_is_refused() -> None:
    class Env(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"text": spaces.Text(5)})

    with pytest.raises(ConfigError, match=r"The observation space text is a Text"):
        VectorCollector([Env], frames_per_batch=1)
