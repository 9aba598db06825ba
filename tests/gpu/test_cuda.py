"""What only a CUDA device can show; `make test-gpu` runs it. All of it on small networks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import NonFiniteError, Trainer, TrainerHookBase, VectorCollector
from hooktrainer.algorithms import DQN, PPO, SAC, TD3
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import ScriptedLoss, tiny_trainer

pytestmark = pytest.mark.gpu

SMALL: dict[str, Any] = {
    **{"num_cells": (16,), "progress_bar": False, "eval_episodes": 0, "tuned": False},
    **{"num_envs": 8, "device": "cuda"},
}
ON: dict[str, Any] = {**SMALL, "steps_per_batch": 16, "mini_batch_size": 32, "num_epochs": 2}
OFF: dict[str, Any] = {**SMALL, "init_random_frames": 64, "batch_size": 32, "buffer_size": 2000}
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (PPO, {"env": "torch/CartPole-v1", **ON}),
    "ppo, Pendulum": (PPO, {"env": "torch/Pendulum-v1", **ON, "scale_rewards": True}),
    "ppo, a memory": (PPO, {"env": "torch/CartPole-v1", **ON, "memory": "gru"}),
    "ppo, divergence": (PPO, {"env": "torch/CartPole-v1", **ON, "desired_kl": 0.01}),
    "dqn": (DQN, {"env": "torch/CartPole-v1", **OFF}),
    "sac": (SAC, {"env": "torch/Pendulum-v1", **OFF}),
    "td3": (TD3, {"env": "torch/Pendulum-v1", **OFF}),
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


class Strict(TrainerHookBase):
    """Makes any wait an error from one batch to the next, log windows apart."""

    is_saved = False

    def __init__(self, batch: int = 6) -> None:
        self.batch = batch

    def register(self, trainer: Any, name: str = "strict") -> None:
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self._begin, priority=1e9)

    def _begin(self, batch: Any) -> None:
        batches = self.trainer.progress.batches
        torch.cuda.set_sync_debug_mode("error" if batches == self.batch else "default")
        if batches > self.batch:
            self.trainer.request_stop("it was seen")


def parameters(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.loss_module.parameters()])


@pytest.mark.parametrize("compile", [None, "step"])
@pytest.mark.parametrize("name", RUNS)
def test_nothing_waits(name, compile):
    kind, options = RUNS[name]
    if compile is not None and ("memory" in options or "desired_kl" in options):
        pytest.skip("a memory is not compiled")
    options = {**options, "total_frames": 100_000, "log_interval": 10**6, "progress_bar": True}
    kind(**options, compile=compile, hooks=[Strict(8)]).train()


@pytest.mark.parametrize("compile", ["step", "all"])
def test_compiled_is_eager(compile):
    left = []
    for given in (None, compile):
        trainer = PPO(env="torch/CartPole-v1", **ON, total_frames=512, compile=given).trainer()
        trainer.train()
        left.append(parameters(trainer))
    torch.testing.assert_close(left[0], left[1], rtol=1e-2, atol=1e-3)


def test_cuda_graphs_compute_the_same(monkeypatch):
    left = []
    for asked in ("", "1"):
        monkeypatch.setenv("HOOKTRAINER_CUDA_GRAPHS", asked)
        trainer = PPO(env="torch/CartPole-v1", **ON, total_frames=1024, compile="all").trainer()
        trainer.train()
        left.append(parameters(trainer))
    torch.testing.assert_close(left[0], left[1], rtol=1e-3, atol=1e-4)


class Die(TrainerHookBase):
    is_saved = False

    def __call__(self) -> None:
        if self.trainer.collected_frames >= 300:
            raise KeyboardInterrupt

    def register(self, trainer: Any, name: str = "die") -> None:
        trainer.register_module(name, self)
        trainer.register_op("pre_optim_steps", self)


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(name, tmp_path):
    kind, options = RUNS[name]
    options = {**options, "total_frames": 640, "log_interval": 1, "save_interval": 100}
    options["logger"] = "csv"
    whole = kind(**options, run_dir=tmp_path / "whole").trainer()
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        kind(**options, run_dir=tmp_path / "run", hooks=[Die()]).train()
    resumed = kind(**options, run_dir=tmp_path / "run", resume="latest").trainer()
    resumed.train()
    assert torch.equal(parameters(resumed), parameters(whole))


def test_what_is_not_finite_does_no_harm():
    loss = ScriptedLoss([1.0, 1.0, 1.0, float("nan"), 1.0]).cuda()
    optimizer = FlatAdam(loss.parameters(), lr=0.1)
    with pytest.raises(NonFiniteError, match="loss is nan at optimizer step 4, after 20 frames"):
        tiny_trainer(loss_module=loss, optimizer=optimizer, log_interval=1000).train()
    assert loss.parameter.item() == pytest.approx(-0.3, abs=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_nearly_as_float32(precision):
    moved = []
    for given in (None, precision):
        trainer = PPO(env="torch/CartPole-v1", **ON, total_frames=512, precision=given).trainer()
        before = parameters(trainer).clone()
        trainer.train()
        moved.append(parameters(trainer) - before)
    assert torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0) > 0.8


def test_batches_of_gymnasiums_environments_are_those_of_a_cpu():
    batches: list[TensorDict] = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        policy = CategoricalPolicy(mlp(4, 2)).to(device)
        policy.act = lambda x: {"action": (x[:, 2] > 0).long()}  # the same everywhere
        collector = VectorCollector(
            "CartPole-v1", policy, num_envs=4, frames_per_batch=128, seed=3, device=device
        )
        batches.append(torch.cat([collector.collect() for _ in range(3)], 1))
        collector.shutdown()
    for key, value in batches[0].items(True, True):
        assert torch.equal(batches[1][key].cpu(), value), key


def test_a_replay_buffer_stays_there():
    buffer = ReplayBuffer(100, batch_size=16, device="cuda")
    data = TensorDict({"x": torch.arange(250.0, device="cuda")}, [250])
    buffer.extend(data)  # allocates
    torch.cuda.set_sync_debug_mode("error")
    buffer.extend(data)
    sample = buffer.sample()
    torch.cuda.set_sync_debug_mode("default")
    assert sample["x"].is_cuda
    assert float(sample["x"].min()) >= 150


def test_gradients_are_averaged_by_nccl(tmp_path: Path):
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL takes a device for each rank, and there is one")
    from run.ranks.rank_processes import RankProcesses

    RankProcesses(2, _average, [tmp_path], tmp_path / "log").check()
    left = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert torch.equal(*left)


def _average(folder: Path) -> None:
    from hooktrainer.run import Ranks
    from hooktrainer.run.ranks.gradients import AverageGradients

    ranks = Ranks.join()
    torch.cuda.set_device(ranks.rank)
    torch.manual_seed(ranks.rank)
    network = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 600)).cuda()
    ranks.broadcast_tensors([p.detach() for p in network.parameters()])
    optimizer = FlatAdam(network.parameters(), lr=0.1)
    average = AverageGradients(ranks, optimizer)
    for _ in range(3):
        network(torch.randn(8, 600, device="cuda")).square().sum().backward()
        average(optimizer)
        optimizer.step()
        optimizer.zero_grad()
    left = torch.cat([p.detach().flatten().cpu() for p in network.parameters()])
    torch.save(left, folder / f"{ranks.rank}.pt")
    ranks.close()
