"""`NanGuard`: stops the run before a NaN or infinite loss reaches the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tensordict import TensorDictBase

from ..errors import NonFiniteError
from ..loop.hook import EARLY, TrainerHookBase


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
        self._changes = -1
        self._defers = False

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> None:
        """Check every ``loss*`` entry.

        Raises:
            NonFiniteError: Names the entry, its value and the step.
        """
        deferred: dict[str, torch.Tensor] = {}
        for key, loss in losses.items():
            if not key.startswith("loss"):
                continue
            if not loss.is_cpu and self.is_registered and self._may_defer():
                deferred[key] = loss
                continue
            # Reading costs a tenth of torch.isfinite for the scalars that losses are.
            value = loss.item() if loss.ndim == 0 else _as_scalar(loss).item()
            if not math.isfinite(value):
                raise self._error(key, value, self._where())
        if deferred:
            keys = tuple(deferred)

            def error(values: Sequence[float], where: str) -> NonFiniteError:
                return next(
                    self._error(key, value, f" {where}")
                    for key, value in zip(keys, values, strict=True)
                    if not math.isfinite(value)
                )

            scalars = [_as_scalar(loss) for loss in deferred.values()]
            self.trainer.finite.see((self, keys), scalars, error)

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

    def _error(self, key: str, value: float, where: str) -> NonFiniteError:
        return NonFiniteError(
            f"{key} is {value}{where}; the parameters are as they were before this step. Look at "
            "the inputs of the loss, lower the learning rate, or pass clip_norm."
        )


def _as_scalar(loss: torch.Tensor) -> torch.Tensor:
    """Return a scalar that is finite if the loss is."""
    if loss.ndim == 0:
        return loss
    return torch.where(loss.isfinite().all(), 0.0, float("nan")).to(loss.dtype)
