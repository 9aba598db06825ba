"""Environments of several agents in processes: the same data, the same state, errors, the end."""

from __future__ import annotations

import pytest
import torch
from toy_parallel import Fails, Leaving, Talking
from toy_scenarios import Steps

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.testing import check_collector


def collector(env=Talking, num_envs=5, steps=7, **kwargs):
    options = {"info_keys": ("height",)} if env is Talking else {}
    frames = num_envs * steps
    return VectorCollector(env, num_envs=num_envs, frames_per_batch=frames, **options, **kwargs)


def batches(built, number=3):
    found = [built.collect() for _ in range(number)]
    built.shutdown()
    return torch.cat(found, 1).apply(lambda x: x.nan_to_num() if x.is_floating_point() else x)


@pytest.mark.parametrize(
    ("env", "workers", "stages"),
    [(Talking, 2, 1), (Talking, 5, 1), (Talking, 2, 2), (lambda: Leaving(masks="info"), 2, 1)],
)
def test_workers_do_not_change_the_data(env, workers, stages):
    alone = batches(collector(env, seed=3))
    built = collector(env, seed=3, workers=workers, stages=stages)
    assert f"workers={workers}" in repr(built)
    assert (batches(built) == alone).all()


def test_a_collector_with_workers_keeps_the_contract():
    check_collector(lambda: collector(num_envs=4, workers=2))


def test_a_state_goes_on_with_any_number_of_workers():
    first = collector(seed=1, workers=2)
    first.collect()
    state = first.state_dict()
    expected = batches(first)
    for workers in (0, 3):
        other = collector(seed=7, workers=workers)
        other.load_state_dict(state)
        assert other.episodes == state["episodes"]
        assert (batches(other) == expected).all()


def test_an_error_comes_here_and_new_episodes_begin():
    built = collector(Fails, num_envs=4, workers=2)
    with pytest.raises(ValueError, match="the arm broke") as caught:
        built.collect()
    assert "worker 0 (environments 0-1)" in "".join(caught.value.__notes__)
    built.collect()
    built.shutdown()


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (Steps, (2,), "workers=2, stages=1: Steps is one batch of tensors"),
        (Talking, (6,), "num_envs=4 with workers=6"),
        (Talking, (-1,), "workers=-1: pass an integer of 0 or more"),
        (Talking, (2, 3), "num_envs=4 with workers=2 and stages=3"),
    ],
)
def test_what_cannot_be_shared_is_refused(env, options, message):
    built = collector(env, num_envs=4)
    with pytest.raises(ConfigError, match=message):
        built.use_workers(*options)
    if env is Talking:
        built.use_workers(4)
        with pytest.raises(ConfigError, match="num_envs=2 with workers=4"):
            built.check_shares(2)
    built.shutdown()
