"""Normalize rewards by their running mean and standard deviation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.batches import valid
from ..errors import ConfigError, HookError
from ..loop.hook import TrainerHookBase
from ..loop.priorities import LATE

if TYPE_CHECKING:
    from ..loop.loop import Loop


class RewardNormalizer(TrainerHookBase):
    """Normalizes the rewards that the loss sees by exponentially decayed statistics.

    The statistics are those of the rewards as collected; the normalized ones are never fed back.

    Args:
        decay: Weight of the past at each batch: its sums are multiplied by it.
        scale: Factor applied after normalization.
        eps: Lower bound of the variance.
        log_pbar: Whether the mean and standard deviation are shown in the progress bar.
        reward_key: Where the reward is.
    """

    def __init__(
        self,
        decay: float = 0.999,
        scale: float = 1.0,
        eps: float | None = None,
        log_pbar: bool = False,
        reward_key: NestedKey | None = None,
    ) -> None:
        if not 0.0 < decay <= 1.0:
            raise ConfigError(f"RewardNormalizer(decay={decay!r}): pass a number in (0, 1].")
        self.decay = decay
        self.scale = scale
        self.eps = torch.finfo(torch.get_default_dtype()).eps if eps is None else eps
        self.log_pbar = log_pbar
        self.reward_key = ("next", "reward") if reward_key is None else reward_key
        self._sum: torch.Tensor | float = 0.0
        self._sum_of_squares: torch.Tensor | float = 0.0
        self._count = 0.0

    @torch.no_grad()
    def update_reward_stats(self, batch: TensorDictBase) -> None:
        """Add the rewards of ``batch`` (those of valid steps) to the statistics."""
        reward = valid(batch, self.reward_key).double()
        self._sum = self.decay * self._sum + reward.sum()
        self._sum_of_squares = self.decay * self._sum_of_squares + reward.square().sum()
        self._count = self.decay * self._count + reward.numel()

    @property
    def mean(self) -> torch.Tensor:
        """Decayed mean of the rewards, a 0-d float64 tensor."""
        if not self._count:
            raise HookError(
                "RewardNormalizer has seen no reward yet; register update_reward_stats at "
                "batch_process, before normalize_reward is called."
            )
        return torch.as_tensor(self._sum / self._count)

    @property
    def std(self) -> torch.Tensor:
        """Decayed standard deviation of the rewards, a 0-d float64 tensor; never below √eps."""
        mean = self.mean
        if self._count <= 1:
            return torch.full_like(mean, self.eps).sqrt()
        variance = (self._sum_of_squares - self._count * mean.square()) / (self._count - 1)
        return variance.clamp_min(self.eps).sqrt()

    @torch.no_grad()
    def normalize_reward(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch`` with normalized rewards; the batch passed in is left as it is."""
        reward = batch.get(self.reward_key)
        normalized = (reward - self.mean.to(reward)) / self.std.to(reward) * self.scale
        return batch.copy().set(self.reward_key, normalized)

    def log_stats(self, batch: TensorDictBase) -> dict[str, Any]:
        """Metrics: the mean and standard deviation used for this batch."""
        return {
            "train/reward_mean": self.mean,
            "train/reward_std": self.std,
            "log_pbar": self.log_pbar,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics, and the decay they were made with."""
        return {
            "decay": self.decay,
            "sum": self._sum,
            "sum_of_squares": self._sum_of_squares,
            "count": self._count,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the statistics; the decay stays the hook's own."""
        state = copy.deepcopy(state_dict)  # whoever passed it may go on writing into it
        self._sum = state["sum"]
        self._sum_of_squares = state["sum_of_squares"]
        self._count = state["count"]

    def register(self, trainer: Loop, name: str = "reward_normalizer") -> None:
        """Register at ``batch_process``, ``process_optim_batch`` and ``pre_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self.update_reward_stats)
        # behind the samplers, which do not look at the batch they are passed
        trainer.register_op("process_optim_batch", self.normalize_reward, priority=LATE)
        trainer.register_op("pre_steps_log", self.log_stats)
