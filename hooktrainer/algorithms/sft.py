"""Supervised fine-tuning of language models, and the base class that it shares with DPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from ..data import DataCollector
from ..hooks import Validate
from ..loop.cadence import Every
from ..objectives import SFTLoss
from ..run.config import Count, FreeAmongSeeds
from ..sequences import Demonstrations
from ..trainer import Trainer
from .algorithm import algorithm
from .config import Settings
from .text import TextAlgorithm, TextRun, TotalSamples


@dataclass(frozen=True, kw_only=True)
class OnTexts(TextAlgorithm):
    """Fields of the algorithms that learn from a data set of texts."""

    total_frames: TotalSamples = 20_000
    """texts to train on, those of several epochs"""
    batch_size: Count = 64
    """texts per batch"""
    log_interval: FreeAmongSeeds[Count] = 2_000
    """texts in a log window"""
    save_interval: FreeAmongSeeds[Count] = 10_000
    """texts between two checkpoints"""
    eval_interval: Count = 10_000
    """texts between two evaluations and validations"""

    collects: ClassVar[bool] = False

    def _wired(self, task: TextRun, loss_module: nn.Module, columns: Sequence[str]) -> Trainer:
        """The trainer of a loss, which reads these columns."""
        data, held_out = (
            Demonstrations(rows, task.tokenizer, columns, task.model.context_length)
            for rows in (task.task.prompts, task.task.held_out)
        )
        batches = partial(
            DataCollector,
            batch_size=self.batch_size,
            collate=Demonstrations.collate,
            device=task.device,
        )
        trainer = task.trainer(
            batches(data, seed=self.seed),
            loss_module,
            optim_steps_per_batch=1,
        )
        if len(held_out):
            every = Every(frames=self.eval_interval)
            Validate(batches(held_out, shuffle=False, epochs=1), every=every).register(trainer)
        return task.finish(trainer)


@algorithm
class SFT(OnTexts):
    """Supervised fine-tuning: maximizes the likelihood of the task's completions."""

    pretrained_lr: ClassVar[float] = 2e-5
    # So few that a sum in fifteen is right: what is left, GRPO learns.
    tuned_for: ClassVar[Settings] = {"addition": {"lr": 2e-3, "total_frames": 14_000}}

    def build(self, task: TextRun) -> Trainer:
        """Wire the trainer."""
        return self._wired(task, SFTLoss(task.model), ("completion",))
