"""`ValueEstimatorHook`: computes advantages and value targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase, unravel_key

from ..base.tensordicts import valid
from ..loop.hook import DEFAULT, EARLY, TrainerHookBase
from ..loop.stateful import has_state


@dataclass(eq=False, repr=False)
class ValueEstimatorHook(TrainerHookBase):
    """Applies a value estimator, such as GAE, to the collected batch.

    Logs ``train/advantage_min``, ``_mean`` and ``_max``, the same for ``train/value_target``, and
    ``train/reward``, the mean (scaled) reward. Entries of a group of agents are logged as
    ``train/<group>/advantage_min`` and so on.

    Args:
        value_estimator: Writes advantages and value targets into a batch ``[num_envs, time]`` and
            returns it.
        every_epoch: Whether to estimate again in every epoch with the current value network.
            Sub-batches must then come from `MiniBatches` or `BatchSubSampler`, not a replay buffer.
    """

    at = (("batch_process", "__call__", DEFAULT), ("pre_steps_log", "log_estimates", DEFAULT))
    default_name = "value_estimator"
    phase = "advantages"

    value_estimator: Callable[[TensorDictBase], TensorDictBase]
    every_epoch: bool = False

    def __post_init__(self) -> None:
        self.saved_attributes = ("value_estimator",) if has_state(self.value_estimator) else ()
        if self.every_epoch:
            renewing = ("process_optim_batch", "renew", EARLY)
            self.at = (*self.at, renewing)  # type: ignore[assignment]
        self._epoch = 0
        self._renewed: TensorDictBase | None = None

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch`` with advantages and value targets."""
        self._epoch, self._renewed = 0, None
        return self.value_estimator(batch)

    def renew(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with the estimates of this epoch."""
        if self.trainer.epoch != self._epoch:
            self._epoch = self.trainer.epoch
            self._renewed = self.value_estimator(batch)
        return batch if self._renewed is None else self._renewed

    def log_estimates(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        """Metrics: range and mean of the estimates, and the mean reward."""
        metrics: dict[str, torch.Tensor] = {}
        keys = getattr(self.value_estimator, "tensor_keys", None)
        for name in ("advantage", "value_target", "reward"):
            key = getattr(keys, name, name)
            place = unravel_key(("next", key)) if name == "reward" else key
            if batch.get(place, None) is None:
                continue
            values = valid(batch, place).detach().float()
            metric = "/".join(["train", *([key] if isinstance(key, str) else key)])
            if name == "reward":
                metrics[metric] = values.mean()
            else:
                metrics[f"{metric}_min"], metrics[f"{metric}_max"] = values.aminmax()
                metrics[f"{metric}_mean"] = values.mean()
        return metrics
