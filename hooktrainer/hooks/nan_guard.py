"""Stop before a loss that is not a number reaches the weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase

from ..errors import NonFiniteError
from ..loop.hook import TrainerHookBase
from ..loop.priorities import EARLY

if TYPE_CHECKING:
    from ..loop.loop import Loop


class NanGuard(TrainerHookBase):
    """Raises before the optimizer step if a loss is NaN or infinite.

    It is on by default; ``Trainer(nan_guard=False)`` leaves it out. On an accelerator it waits for
    the loss once per optimizer step, which is what it takes to know in time.
    """

    trains = False

    def __init__(self) -> None:
        self._read: Callable[[str, torch.Tensor], float] = _item

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> None:
        """Check every ``loss*`` entry.

        Raises:
            NonFiniteError: Naming the entry, its value and the step.
        """
        for key, loss in losses.items():
            if key.startswith("loss"):
                # Reading costs a tenth of torch.isfinite for the scalars that losses are.
                scalar = loss.ndim == 0
                finite = math.isfinite(self._read(key, loss)) if scalar else loss.isfinite().all()
                if not finite:
                    raise NonFiniteError(self._message(key, loss))

    def _message(self, key: str, loss: torch.Tensor) -> str:
        where = ""
        if self.is_registered:
            where = (
                f" at optimizer step {self.trainer.optim_count}, after "
                f"{self.trainer.collected_frames} frames"
            )
        value = f"{loss.item()}" if loss.ndim == 0 else "not finite"
        return (
            f"{key} is {value}{where}; the parameters are as they were before this step. Look at "
            "the inputs of the loss, lower the learning rate, or pass clip_norm."
        )

    def register(self, trainer: Loop, name: str = "nan_guard") -> None:
        """Register at ``optimizer``, before every optimizer."""
        self._read = trainer.metrics.read
        trainer.register_module(name, self)
        trainer.register_op("optimizer", self, priority=EARLY)


def _item(key: str, loss: torch.Tensor) -> float:
    return loss.item()
