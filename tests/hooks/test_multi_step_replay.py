"""Transitions of several steps: by hand, as TorchRL's, across batches, ends and padding."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict import TensorDict
from torchrl.data import MultiStep

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.base.tensordicts import count_valid
from hooktrainer.errors import SkipOptimStep
from hooktrainer.hooks import MultiStepReplay
from hooktrainer.objectives.multi_step import multi_step_return
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import tiny_trainer

STEPS = "steps_to_next_obs"
KEYS = ["observation", ("next", "observation"), ("next", "reward"), ("next", "terminated")]


def example(trainer: Any) -> MultiStepReplay:
    keys = ["observation", ("next", "reward"), STEPS]
    return MultiStepReplay(ReplayBuffer(30, batch_size=4, keys=keys), 3)


def make_hook(n_steps: int = 3, gamma: float = 0.5) -> MultiStepReplay:
    return MultiStepReplay(
        ReplayBuffer(200, batch_size=4, keys=[*KEYS, STEPS]), n_steps, gamma=gamma
    )


def stored(hook: MultiStepReplay) -> list[tuple[float, ...]]:
    """Observation, return, next observation, whether it is terminal, number of steps."""
    buffer = hook.replay_buffer
    if not len(buffer):
        return []
    rows = buffer.state_dict()["storage"]
    columns = [rows[key].flatten().tolist() for key in ("observation", *KEYS[2:0:-1], KEYS[3])]
    return sorted(zip(*columns, rows[STEPS].flatten().tolist(), strict=True))


def make_batch(first: int, time: int, terminated=(), truncated=(), envs: int = 1) -> TensorDict:
    """Steps numbered in time; the reward of step t is t + 1; the second environment's from 100."""
    number = torch.arange(first, first + time).repeat(envs, 1) + 100 * torch.arange(envs)[:, None]
    ends = [torch.zeros(envs, time, 1, dtype=torch.bool) for _ in range(2)]
    for flags, steps in zip(ends, (terminated, truncated), strict=True):
        for step in steps:
            flags[0, step - first] = True  # of the first environment
    x = number.float().unsqueeze(-1)
    following = {"observation": x + 1, "reward": x + 1, "done": ends[0] | ends[1]}
    return TensorDict(
        {"observation": x, "next": {**following, "terminated": ends[0]}}, [envs, time]
    )


def test_by_hand():
    reward = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]])
    ends = torch.tensor([[False, False, True, False, False]])
    total, steps = multi_step_return(reward, ends, 3, 0.5)
    assert total.tolist() == [[1 + 1 + 1, 2 + 2, 4.0, 8 + 8, 16.0]]
    assert steps.tolist() == [[3, 2, 1, 2, 1]]
    total, steps = multi_step_return(reward, ends, 1, 0.5)
    assert (total.tolist(), steps.tolist()) == (reward.tolist(), [[1] * 5])


@pytest.mark.parametrize("sizes", [[8], [1] * 8, [2, 5, 1], [3, 3, 2]])
def test_windows_continue_across_batches_of_any_length(sizes):
    hook = make_hook()
    first = 0
    for size in sizes:
        hook.extend(make_batch(first, size, [3] if first <= 3 < first + size else ()))
        first += size
    # The episode ends with step 3. Steps 6 and 7 wait for the next batch.
    assert stored(hook) == [
        (0.0, 1 + 0.5 * 2 + 0.25 * 3, 3.0, False, 3),
        (1.0, 2 + 0.5 * 3 + 0.25 * 4, 4.0, True, 3),
        (2.0, 3 + 0.5 * 4, 4.0, True, 2),
        (3.0, 4.0, 4.0, True, 1),
        (4.0, 5 + 0.5 * 6 + 0.25 * 7, 7.0, False, 3),
        (5.0, 6 + 0.5 * 7 + 0.25 * 8, 8.0, False, 3),
    ]


def test_a_truncated_episode_is_not_terminal_and_environments_are_apart():
    hook = make_hook()
    hook.extend(make_batch(0, 2, truncated=[1], envs=2))
    assert stored(hook) == [(0.0, 2.0, 2.0, False, 2), (1.0, 2.0, 2.0, False, 1)]
    hook.extend(make_batch(2, 1, envs=2))
    assert stored(hook)[-1] == (100.0, 101 + 0.5 * 102 + 0.25 * 103, 103.0, False, 3)
    assert len(stored(hook)) == 3
    hook.extend(make_batch(3, 2, envs=3))  # another number of environments restarts
    assert len(stored(hook)) == 3


def test_a_window_ends_where_an_episode_is_left_without_an_end():
    hook = make_hook()
    for first, counts in [(0, [1, 2, 3, 4]), (10, [1, 2, 3, 4])]:  # as after a reset
        batch = make_batch(first, 4)
        batch["next", "step_count"] = torch.tensor(counts).view(1, 4, 1)
        hook.extend(batch)
    assert [(row[0], row[2], row[4]) for row in stored(hook)] == [
        *[(0.0, 3.0, 3), (1.0, 4.0, 3), (2.0, 4.0, 2), (3.0, 4.0, 1)],
        *[(10.0, 13.0, 3), (11.0, 14.0, 3)],
    ]


def test_equals_torchrls():
    torch.manual_seed(0)
    batch = make_batch(0, 40, [3, 4, 9, 30], [17, 25], envs=3)
    batch["next", "reward"] = torch.randn(3, 40, 1)
    whole = batch.clone()
    whole["next", "truncated"] = whole["next", "done"] & ~whole["next", "terminated"]
    whole["collector", "traj_ids"] = torch.zeros(3, 40, dtype=torch.int64)
    theirs = MultiStep(0.9, 4)(whole)
    hook = make_hook(4, 0.9)
    hook.extend(batch)
    ours = hook.replay_buffer.state_dict()["storage"]
    assert len(ours) == 3 * 40 - 3 * 3  # the last three of each environment wait
    index = {x: k for k, x in enumerate(theirs["observation"].flatten().tolist())}
    theirs = theirs.reshape(-1)[[index[x] for x in ours["observation"].flatten().tolist()]]
    for key in KEYS[:3]:  # TorchRL leaves "terminated" that of the first step
        torch.testing.assert_close(ours[key], theirs[key])
    assert torch.equal(ours[STEPS].flatten(), theirs[STEPS].flatten())


def test_padding_is_no_part_of_a_window():
    hook = make_hook()
    batch = make_batch(0, 6, [1])
    batch["collector", "mask"] = torch.tensor([[True, True, False, True, True, False]])
    hook.extend(batch)
    assert [(row[0], row[2], row[4]) for row in stored(hook)] == [
        *[(0.0, 2.0, 2), (1.0, 2.0, 1)],
        *[(3.0, 5.0, 2), (4.0, 5.0, 1)],
    ]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_collected_steps_of_every_autoreset_mode(mode):
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=mode)
    collector = VectorCollector(envs, frames_per_batch=60, init_random_frames=10**6)
    hook, number = make_hook(gamma=1.0), 0
    for _, batch in zip(range(3), collector, strict=False):
        hook.extend(batch)
        number += count_valid(batch)
    collector.shutdown()
    rows = hook.replay_buffer.state_dict()["storage"]
    steps = rows[STEPS].flatten()
    assert number - 6 <= len(rows) <= number
    assert torch.equal(rows["next", "reward"].flatten(), steps.float())
    # No episode of random actions is truncated: windows are shorter where it fell.
    fallen = rows["next", "terminated"].flatten()
    assert fallen[steps < 3].all()
    assert fallen.sum() == 3 * (steps == 1).sum() > 6
    # A step moves the cart by its velocity, of at most 3 in 0.02 s: nothing spans two episodes.
    moved = (rows["next", "observation"] - rows["observation"])[:, 0]
    assert (moved.abs() < steps * 0.06).all()


def test_without_a_transition_the_step_is_skipped():
    trainer = tiny_trainer()
    hook = make_hook()
    hook.register(trainer)
    batch = make_batch(0, 2)
    assert hook.extend(batch) is batch
    with pytest.raises(SkipOptimStep):
        hook.sample(batch)
    hook.extend(make_batch(2, 2))
    assert hook.sample(batch).shape == (4,)


def test_what_waits_is_saved():
    hook, other = make_hook(), make_hook()
    hook.extend(make_batch(0, 4))
    other.load_state_dict(hook.state_dict())
    for each in (hook, other):
        each.extend(make_batch(4, 3))
    assert len(stored(hook)) == 5
    assert stored(hook) == stored(other)


def test_a_buffer_without_the_number_of_steps_is_refused():
    with pytest.raises(ConfigError, match=r"keys have to include 'steps_to_next_obs'"):
        MultiStepReplay(ReplayBuffer(10, keys=["observation"]), 3)
