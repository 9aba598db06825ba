"""What holds for environments of one kind holds for those of every kind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from agents.toy_parallel import Leaving
from toy_envs import Counter

from hooktrainer import VectorCollector
from hooktrainer.testing import check_collector

KINDS: dict[str, Any] = {
    "scalar": Counter,
    "vector": "CartPole-v1",
    "agents": Leaving,
    "tensors": "torch/CartPole-v1",
}


def collector(kind: str, num_envs: int = 4, steps: int = 9, **options: Any) -> VectorCollector:
    frames = num_envs * steps
    return VectorCollector(KINDS[kind], num_envs=num_envs, frames_per_batch=frames, **options)


def test_the_contract_is_kept_with_workers_and_stages() -> None:
    for kind in ("scalar", "agents"):
        check_collector(partial(collector, kind, workers=2, stages=2), batches=2)


@pytest.mark.parametrize("kind", KINDS)
def test_trajectories_are_numbered(kind: str) -> None:
    made = collector(kind, steps=50, traj_ids=True)
    for _ in range(2):
        batch = made.collect()
        ids, done = batch["collector", "traj_ids"], batch["next", "done"].squeeze(-1)
        assert (ids % 4).eq(torch.arange(4).unsqueeze(-1)).all()
        assert (ids[:, 1:] - ids[:, :-1]).eq(4 * done[:, :-1]).all()
    running = torch.tensor(made.envs.episodes)
    assert (ids[:, -1] // 4 + done[:, -1]).eq(running).all()
    made.shutdown()


@pytest.mark.parametrize("kind", KINDS)
def test_any_share_of_the_environments_plays_the_same_episodes(kind: str) -> None:
    whole = collector(kind, seed=3, traj_ids=True)
    shares = [collector(kind, seed=3, traj_ids=True) for _ in range(2)]
    for rank, share in enumerate(shares):
        share.shard(rank, 2)
    for _ in range(2):
        batch = whole.collect()
        assert (batch == torch.cat([share.collect() for share in shares])).all()
    alone = collector(kind, num_envs=1, steps=18, seed=3, first_env=2)
    assert (alone.collect()[:, 9:] == batch[2:3].exclude("collector")).all()
    for made in (whole, alone, *shares):
        made.shutdown()


@pytest.mark.parametrize("saved_exactly", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_episodes_that_are_not_to_be_restored_begin_anew(kind: str, saved_exactly: bool) -> None:
    made = collector(kind, steps=2, restore_episodes=saved_exactly)
    made.collect()
    other = collector(kind, steps=2, restore_episodes=False)
    other.load_state_dict(made.state_dict())
    assert other.resumes == "partly"
    assert other.unsaved is None  # since it was asked for
    batch = other.collect()
    assert batch["next", "step_count"][:, 0].eq(1).all()
    assert other.envs.episodes != made.envs.episodes
    made.shutdown()
    other.shutdown()


@pytest.mark.parametrize("kind", ["scalar", "agents"])
def test_attributes_are_set_in_every_environment(kind: str) -> None:
    limit = {"scalar": "length", "agents": "limit"}[kind]
    for options in ({}, {"workers": 2}):
        made = collector(kind, steps=8, **options)
        made.set_attribute(limit, 2)
        ends = made.collect()["next", "done"].squeeze(-1)
        assert ends.eq(torch.tensor([False, True] * 4)).all()
        made.shard(1, 2)
        assert torch.equal(made.collect()["next", "done"].squeeze(-1), ends[2:])
        made.shutdown()
