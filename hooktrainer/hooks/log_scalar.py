"""Log one entry of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.batches import valid
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop

_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "min": torch.amin,
    "max": torch.amax,
}


class LogScalar(TrainerHookBase):
    """Logs a reduction of one entry of every collected batch; padded steps are left out.

    Args:
        key: Where the entry is.
        logname: Name of the metric; by default the key.
        log_pbar: Whether the metric is shown in the progress bar.
        include_std: Whether ``<logname>_std`` is logged as well.
        reduction: ``"mean"``, ``"sum"``, ``"min"`` or ``"max"``.
    """

    def __init__(
        self,
        key: NestedKey = ("next", "reward"),
        logname: str | None = None,
        log_pbar: bool = False,
        include_std: bool = True,
        reduction: str = "mean",
    ) -> None:
        if reduction not in _REDUCTIONS:
            raise ConfigError(
                f"LogScalar(reduction={reduction!r}): pass one of {', '.join(_REDUCTIONS)}."
            )
        self.key = key
        self.logname = str(key) if logname is None else logname
        self.log_pbar = log_pbar
        self.include_std = include_std
        self.reduction = reduction

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the metric; the values stay tensors on the batch's device."""
        values = valid(batch, self.key).detach().float()
        result = {self.logname: _REDUCTIONS[self.reduction](values), "log_pbar": self.log_pbar}
        if self.include_std and values.numel() > 1:
            result[f"{self.logname}_std"] = values.std()
        return result

    def register(self, trainer: Loop, name: str | None = None) -> None:
        """Register at ``pre_steps_log``."""
        trainer.register_module(f"log_{self.logname}" if name is None else name, self)
        trainer.register_op("pre_steps_log", self)
