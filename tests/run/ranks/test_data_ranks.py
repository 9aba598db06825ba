"""Two processes that train on data: batches, validation and accumulation are those of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from outcomes import committed, rows
from rank_processes import RankProcesses
from tensordict import TensorDict
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.checkpoint import checkpoint
from toy import Trouble

from hooktrainer import AverageWeights, DataCollector, LRSchedulerHook, Trainer, Validate
from hooktrainer.run import Run, RunConfig

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch was built without torch.distributed"
)


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int | None = None
    log_interval: int = 24
    save_interval: int = 1
    keep_last: int = 99
    progress_bar: bool = False


class Net(nn.Module):
    """Recomputes the activations of its hidden layer in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(lambda y: self.hidden(y).tanh(), x, use_reentrant=False)
        return self.head(hidden)


class Classify(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, batch: Any) -> TensorDict:
        logits = self.net(batch["x"])
        return TensorDict({"loss": nn.functional.cross_entropy(logits.float(), batch["y"])})


def samples(number: int, seed: int) -> list[dict[str, Any]]:
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 4, generator=drawn)
    return [{"x": row, "y": int(row[:3].argmax())} for row in x]


def train(path: Path, sharded: bool, stop: tuple[str, int, int], resume: str | None) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    run = Run(Args(run_dir=path, resume=resume), "toy")
    loss = Classify(run.fully_shard(Net()) if sharded else Net())
    optimizer = torch.optim.AdamW(loss.parameters(), lr=0.03)
    trainer = Trainer(
        collector=DataCollector(samples(40, 1), 8, epochs=4),
        optim_steps_per_batch=1,
        loss_module=loss,
        optimizer=optimizer,
        accumulate=3,
        clip_norm=1.0,
        precision="bf16",
        **run.trainer_options,
    )
    average = None
    if not sharded:
        average = AverageWeights(loss, decay=0.9)
        average.register(trainer)
    plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
    LRSchedulerHook(plateau, monitor="val/loss").register(trainer)
    Validate(samples(13, 2), batch_size=5, weights=average).register(trainer)
    Trouble(*stop).register(trainer)
    run.train(trainer)
    assert trainer.stop_reason == "the data ran out after 4 epochs"
    assert trainer.optim_count == 6
    assert optimizer.param_groups[0]["lr"] < 0.03


def losses(path: Path) -> dict[str, float]:
    found = [row.split(",") for row in rows(path)[1:]]
    return {f"{step} {name}": float(value) for step, name, value in found if "loss" in name}


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_ranks_train_as_one_process_does_and_resume_between_the_parts_of_a_step(sharded, tmp_path):
    """In bfloat16, with recomputed activations; sharded by `Run.fully_shard` or not."""

    def ranks(name: str, number: int, stop: Any = ("nothing", 0, 0), resume: Any = None) -> Any:
        given = [tmp_path / name, sharded, stop, resume]
        return RankProcesses(number, train, given, tmp_path / f"log_{name}")

    for name, number in (("one", 1), ("two", 2)):
        ranks(name, number).check()
    ranks("killed", 2, ("SIGKILL", 1, 12)).wait()
    assert committed(tmp_path / "killed")[-1] == 11 * 8  # two parts of a step are summed up
    ranks("killed", 2, resume="latest").check()
    assert rows(tmp_path / "killed") == rows(tmp_path / "two")
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert one.keys() == two.keys()
    assert len([key for key in one if "val/loss" in key]) == 4
    for key in one:
        assert two[key] == pytest.approx(one[key], rel=0.02), key
