"""`ValueEstimatorHook`: computes advantages and value targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase, unravel_key

from ..base.tensordicts import valid
from ..errors import ConfigError
from ..loop.hook import EARLY, TrainerHookBase
from ..loop.stateful import has_state

if TYPE_CHECKING:
    from ..loop.loop import Loop


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

    Raises:
        ConfigError: If the estimator is not callable.
    """

    phase = "advantages"

    value_estimator: Callable[[TensorDictBase], TensorDictBase]
    every_epoch: bool = False

    def __post_init__(self) -> None:
        if not callable(self.value_estimator):
            raise ConfigError(
                f"ValueEstimatorHook({self.value_estimator!r:.80}): pass what writes advantages "
                "into a batch and returns it, such as GAE."
            )
        self._epoch = 0
        self._renewed: TensorDictBase | None = None

    def __call__(self, batch: TensorDictBase | None) -> TensorDictBase | None:
        """Return ``batch`` with advantages and value targets; ``None`` for ``None``."""
        if batch is None:
            return None
        self._epoch, self._renewed = 0, None
        return self.value_estimator(batch)

    def renew(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with the estimates of this epoch."""
        if self.trainer.epoch != self._epoch:
            self._epoch = self.trainer.epoch
            self._renewed = self.value_estimator(batch)
        return batch if self._renewed is None else self._renewed

    def log_estimates(self, batch: TensorDictBase | None) -> dict[str, torch.Tensor]:
        """Metrics: range and mean of the estimates, and the mean reward."""
        metrics: dict[str, torch.Tensor] = {}
        if batch is None:
            return metrics
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

    def state_dict(self) -> dict[str, Any]:
        """Return the estimator's state, if it has any."""
        if not has_state(self.value_estimator):
            return {}
        return {"value_estimator": self.value_estimator.state_dict()}  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the estimator's state."""
        if "value_estimator" in state_dict:
            self.value_estimator.load_state_dict(  # type: ignore[attr-defined]
                state_dict["value_estimator"]
            )

    def register(self, trainer: Loop, name: str = "value_estimator") -> None:
        """Register at ``batch_process``, ``pre_steps_log`` and maybe ``process_optim_batch``."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)
        trainer.register_op("pre_steps_log", self.log_estimates)
        if self.every_epoch:
            trainer.register_op("process_optim_batch", self.renew, priority=EARLY)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_renewed": None}
