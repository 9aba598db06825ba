"""A small classification problem, and trainers of it."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from hooktrainer import DataCollector, Trainer


class Classify(nn.Module):
    """The mean cross entropy and the accuracy of a linear classifier; remembers what it saw."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Dropout(dropout), nn.Linear(3, 2))
        self.seen: list[list[int]] = []

    def forward(self, batch: TensorDictBase) -> TensorDict:
        self.seen.append(batch["i"].tolist())
        logits = self.net(batch["x"])
        loss = nn.functional.cross_entropy(logits, batch["y"])
        return TensorDict({"loss": loss, "accuracy": (logits.argmax(-1) == batch["y"]).float()})


def make_data(number: int = 10, seed: int = 0) -> TensorDict:
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 3, generator=drawn)
    entries = {"x": x, "y": (x.sum(-1) > 0).long(), "i": torch.arange(number)}
    return TensorDict(entries, [number])


def make_trainer(collector: Any = None, loss: Any = None, **options: Any) -> Trainer:
    collector = DataCollector(make_data(), 4, epochs=3) if collector is None else collector
    loss = Classify() if loss is None else loss
    options = {"optimizer": torch.optim.SGD(loss.parameters(), lr=0.1), **options}
    fixed = {"optim_steps_per_batch": 1, "progress_bar": False, "log_interval": 4, "seed": 3}
    return Trainer(collector=collector, loss_module=loss, **{**fixed, **options})
