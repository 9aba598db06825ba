"""How many threads torch computes with while a run trains."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hooktrainer import algorithms
from hooktrainer.base import cores as threads
from hooktrainer.base.cores import SMALL, compute_threads, threads_for
from hooktrainer.networks import mlp, orthogonal_init
from hooktrainer.testing import ScriptedLoss, tiny_trainer

LARGE = nn.Linear(SMALL // 2, 2)


@pytest.fixture
def three_threads(monkeypatch):
    """torch computes with three threads, a number that was not chosen."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_AT_IMPORT", 3)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def while_training(trainer):
    seen = []
    trainer.register_op("post_steps", lambda: seen.append(torch.get_num_threads()))
    trainer.train()
    return set(seen)


@pytest.mark.usefixtures("three_threads")
def test_small_networks_are_trained_with_one_thread():
    assert while_training(tiny_trainer()) == {1}
    assert torch.get_num_threads() == 3  # as it was
    algorithm = algorithms.PPO(
        env="CartPole-v1",
        total_frames=64,
        num_envs=2,
        steps_per_batch=32,
        mini_batch_size=32,
        num_cells=(8,),
        eval_episodes=0,
        progress_bar=False,
    ).trainer()
    assert while_training(algorithm) == {1}


@pytest.mark.usefixtures("three_threads")
def test_large_networks_use_all_threads():
    class LargeLoss(ScriptedLoss):
        def __init__(self):
            super().__init__()
            self.large = LARGE

    assert while_training(tiny_trainer(loss_module=LargeLoss())) == {3}
    assert [threads_for(mlp(4, 2)), threads_for(LARGE)] == [1, None]


@pytest.mark.usefixtures("three_threads")
def test_a_chosen_number_of_threads_is_kept(monkeypatch):
    assert while_training(tiny_trainer(threads=2)) == {2}
    torch.set_num_threads(2)
    assert while_training(tiny_trainer()) == {2}
    torch.set_num_threads(3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert while_training(tiny_trainer()) == {3}


def test_weights_do_not_depend_on_the_number_of_threads():
    weights = []
    for number in (1, 2):
        with compute_threads(number):
            torch.manual_seed(0)
            weights.append(orthogonal_init(mlp(64, 64, (256, 256)))[2].weight.clone())
    assert torch.equal(*weights)
