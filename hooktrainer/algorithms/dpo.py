"""Direct preference optimization of language models."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..objectives import DPOLoss
from ..run.config import Fraction, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .sft import OnTexts
from .text import TextRun


@algorithm
class DPO(OnTexts):
    """Direct preference optimization: learns from pairs of a chosen and a rejected completion.

    Rafailov et al., 2023, arXiv:2305.18290. The reference is a copy of the initial model.
    """

    beta: Rate = 0.1
    """inverse strength of the preferences, or weight of staying near the reference"""
    variant: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    """loss of a pair: sigmoid (DPO), hinge (SLiC) or ipo (arXiv:2310.12036)"""
    label_smoothing: Fraction = 0.0
    """fraction of pairs that are taken to be swapped"""

    small_lr: ClassVar[float] = 1e-4

    def build(self, task: TextRun) -> Trainer:
        """Wire the trainer."""
        loss_module = DPOLoss(
            task.model,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
            variant=self.variant,
        )
        return self._wired(task, loss_module, ("chosen", "rejected"))
