"""`NanGuard`: stops the run before a NaN or infinite loss reaches the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase

from ..errors import NonFiniteError
from ..loop.finite import FiniteChecks
from ..loop.hook import EARLY, TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop


class NanGuard(TrainerHookBase):
    """Raises before the optimizer step if a loss is NaN or infinite.

    It is on by default; ``Trainer(nan_guard=False)`` leaves it out.

    On an accelerator it does not synchronize: `OptimizerHook` skips this step and all later ones,
    and the error is raised at the end of the log window or before a save, whichever is first; see
    `hooktrainer.loop.finite.FiniteChecks`. If another hook takes the steps, it synchronizes at
    every step.
    """

    at = "optimizer"
    priority = EARLY  # before every optimizer
    trains = False

    def __init__(self) -> None:
        self._checks: FiniteChecks | None = None
        self._changes = -1
        self._defers = False

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> None:
        """Check every ``loss*`` entry.

        Raises:
            NonFiniteError: Names the entry, its value and the step.
        """
        on_device = []
        for key, loss in losses.items():
            if key.startswith("loss"):
                if self._checks is not None and not loss.is_cpu and self._may_defer():
                    on_device.append((key, loss))
                    continue
                # Reading costs a tenth of torch.isfinite for the scalars that losses are.
                scalar = loss.ndim == 0
                finite = math.isfinite(loss.item()) if scalar else loss.isfinite().all()
                if not finite:
                    raise self._error(key, loss.item() if scalar else None, self._where())
        if on_device and self._checks is not None:
            self._look(self._checks, on_device)

    def _look(self, checks: FiniteChecks, losses: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Check losses on an accelerator without synchronization."""
        keys = tuple(key for key, _ in losses)
        are_scalars = [loss.ndim == 0 for _, loss in losses]

        def error(values: Sequence[float], where: str) -> NonFiniteError:
            bad = next(place for place, value in enumerate(values) if not math.isfinite(value))
            return self._error(keys[bad], values[bad] if are_scalars[bad] else None, f" {where}")

        checks.see((self, keys), [_as_scalar(loss) for _, loss in losses], error)

    def _may_defer(self) -> bool:
        """Whether every hook that takes steps skips them after a loss that is not finite."""
        registry = self.trainer.registry
        if self._changes != registry.changes:
            self._changes = registry.changes
            entries = registry.points["optimizer"].entries
            trains = [e.owner for e in entries if getattr(e.owner, "trains", True)]
            self._defers = all(getattr(owner, "leaves_out_steps", False) for owner in trains)
        return self._defers

    def _where(self) -> str:
        if not self.is_registered:
            return ""
        trainer = self.trainer
        return f" at optimizer step {trainer.optim_count}, after {trainer.collected_frames} frames"

    def _error(self, key: str, value: float | None, where: str) -> NonFiniteError:
        said = "not finite" if value is None else f"{value}"
        return NonFiniteError(
            f"{key} is {said}{where}; the parameters are as they were before this step. Look at "
            "the inputs of the loss, lower the learning rate, or pass clip_norm."
        )

    def register(self, trainer: Loop, name: str = "nan_guard") -> None:
        """Register at ``optimizer``, before every optimizer."""
        self._checks = trainer.finite
        super().register(trainer, name)


def _as_scalar(loss: torch.Tensor) -> torch.Tensor:
    """Return a scalar that is finite if the loss is."""
    if loss.ndim == 0:
        return loss
    return torch.where(loss.isfinite().all(), 0.0, float("nan")).to(loss.dtype)
