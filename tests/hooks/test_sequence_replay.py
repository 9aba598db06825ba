"""Sequences go on over the ends of batches, overlap, and are there again after a resume."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import ConfigError
from hooktrainer.errors import SkipOptimStep
from hooktrainer.hooks import SequenceReplay
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import tiny_trainer

ENVS = 2
KEYS = ["observation", ("memory", "h"), ("next", "reward")]


def make_hook(length: int = 5, overlap: int = 2, **options: Any) -> SequenceReplay:
    buffer = ReplayBuffer(40, batch_size=3, keys=KEYS)
    return SequenceReplay(buffer, length, overlap=overlap, hidden_keys=[("memory", "h")], **options)


def make_batch(first: int, time: int, envs: int = ENVS) -> TensorDict:
    """Steps numbered in time, from 100 on for the second environment."""
    number = torch.arange(first, first + time).repeat(envs, 1) + 100 * torch.arange(envs)[:, None]
    number = number.float()
    content = {
        "observation": number,
        "memory": {"h": -number.unsqueeze(-1)},
        "next": {"reward": number.unsqueeze(-1) + 0.5, "other": number},
        "other": number,
    }
    return TensorDict(content, [envs, time])


def example(trainer: Any) -> SequenceReplay:
    buffer = ReplayBuffer(30, batch_size=4, keys=["observation", ("next", "reward")])
    return SequenceReplay(buffer, 3, overlap=1)


def stored(hook: SequenceReplay) -> list[list[float]]:
    storage = hook.replay_buffer.state_dict()["storage"]
    return [] if storage is None else storage["observation"].tolist()


def test_sequences_overlap_and_continue_over_batches():
    trainer = tiny_trainer()
    hook = make_hook()
    hook.register(trainer)
    batch = make_batch(0, 4)
    assert hook.extend(batch) is batch
    with pytest.raises(SkipOptimStep):  # no sequence yet
        hook.sample(batch)
    hook.extend(make_batch(4, 3))
    assert stored(hook) == [[0, 1, 2, 3, 4], [100, 101, 102, 103, 104]]
    hook.extend(make_batch(7, 7))
    firsts = [row[0] for row in stored(hook)]
    assert firsts == [0, 100, 3, 103, 6, 106, 9, 109]
    assert all(row == [row[0] + k for k in range(5)] for row in stored(hook))
    row = hook.replay_buffer.state_dict()["storage"][2]
    assert row["memory", "h"].tolist() == [[-3.0]]  # the first alone
    assert row["next", "reward"].flatten().tolist() == [3.5, 4.5, 5.5, 6.5, 7.5]
    assert set(row.keys(True, True)) == set(KEYS)
    sample = hook.sample(batch)
    assert sample.shape == (3,)
    assert sample["observation"].shape == (3, 5)


def test_another_number_of_environments_restarts_sequences():
    hook = make_hook()
    hook.extend(make_batch(0, 4))
    hook.extend(make_batch(4, 5, envs=3))
    assert [row[0] for row in stored(hook)] == [4, 104, 204]


def test_impossible_sequences_are_refused():
    with pytest.raises(ConfigError, match="overlap=5 leaves nothing new of sequences of 5 steps"):
        make_hook(5, 5)
    with pytest.raises(ConfigError, match=r"give the buffer the keys to store"):
        SequenceReplay(ReplayBuffer(10), 5)
