"""Scale rewards by the deviation of the discounted return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from ..base.batches import mask_of
from ..base.returns import running_returns
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase
from ..loop.priorities import EARLY, LATE

if TYPE_CHECKING:
    from ..loop.loop import Loop


class RewardScaler(TrainerHookBase):
    """Divides rewards by the running standard deviation of the discounted return, and clips them.

    The usual scaling of PPO for continuous control (Engstrom et al., 2020, arXiv:2005.12729,
    section 3), as in Gymnasium's ``NormalizeReward``. Register it before the advantages are
    estimated. Episode returns that are logged stay as they are.

    The returns of the environments go on from batch to batch. The rows of a padded batch are
    trajectories instead: each return begins at 0, and the padding is not counted.

    Args:
        gamma: Discount factor of the return.
        clip: Bound of a scaled reward.
        eps: Added to the variance.
        replay: Whether batches are stored as they are, and rewards scaled when they are sampled, so
            that all of a replay buffer is scaled by what is known now.

    Raises:
        ConfigError: If ``gamma`` is not in ``[0, 1]``.
    """

    def __init__(
        self, gamma: float = 0.99, clip: float = 10.0, eps: float = 1e-8, *, replay: bool = False
    ) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ConfigError(f"RewardScaler(gamma={gamma!r}): pass a number from 0 to 1.")
        self.gamma = gamma
        self.clip = clip
        self.eps = eps
        self.replay = replay
        self._returns = torch.zeros(0, dtype=torch.float64)
        # Numbers; or, of rewards on an accelerator, tensors there.
        self._mean: Any = 0.0
        self._var: Any = 1.0
        self._count: Any = 0.0

    @torch.no_grad()
    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch``, ``[num_envs, time]``, with scaled rewards; that given is unchanged."""
        self.observe(batch)
        return self.scale(batch)

    @torch.no_grad()
    def observe(self, batch: TensorDictBase) -> None:
        """Add the rewards of ``batch``, ``[num_envs, time]``, to the statistics."""
        reward, done = batch.get(("next", "reward")), batch.get(("next", "done"))
        self._update(reward.squeeze(-1).double(), done.squeeze(-1), mask_of(batch))

    def scale(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch`` with scaled rewards; that given is unchanged."""
        reward = batch.get(("next", "reward"))
        scaled = (reward / (self._var + self.eps) ** 0.5).clamp(-self.clip, self.clip)
        return batch.copy().set(("next", "reward"), scaled)

    def _update(self, reward: torch.Tensor, done: torch.Tensor, mask: torch.Tensor | None) -> None:
        # Restored, they lie on the CPU.
        returns = self._returns.to(reward.device)
        if mask is not None or len(returns) != len(reward):  # as in the beginning
            returns = torch.zeros_like(reward[:, 0])
        values, returns = running_returns(reward, returns, self.gamma, done)
        if mask is None:
            self._returns = returns
        number, mean, var = _moments(values, None if mask is None else mask.T)
        # Chan, Golub and LeVeque, 1979, as in `hooktrainer.networks.RunningNorm`.
        total = self._count + number
        delta = mean - self._mean
        squares = self._var * self._count + var * number
        self._var = (squares + delta**2 * self._count * number / total) / total
        self._mean += delta * number / total
        self._count = total

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics and the running returns."""
        return {
            "returns": self._returns,
            "mean": self._mean,
            "var": self._var,
            "count": self._count,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the statistics and the running returns."""
        self._returns = state_dict["returns"].clone()
        self._mean = state_dict["mean"]
        self._var = state_dict["var"]
        self._count = state_dict["count"]

    def register(self, trainer: Loop, name: str = "reward_scaler") -> None:
        """Register at ``batch_process``, before what looks at rewards.

        With ``replay`` the scaling itself is registered at ``process_optim_batch``.
        """
        trainer.register_module(name, self)
        if not self.replay:
            trainer.register_op("batch_process", self, priority=EARLY)
            return
        trainer.register_op("batch_process", self.observe, priority=EARLY)
        # behind the samplers, which do not look at the batch they are passed
        trainer.register_op("process_optim_batch", self.scale, priority=LATE)


def _moments(values: torch.Tensor, mask: torch.Tensor | None) -> tuple[Any, Any, Any]:
    """Number, mean and variance of the values that a mask leaves.

    On an accelerator they are tensors, since nobody waits to read them.
    """
    if mask is None:
        mean, var = values.mean(), values.var(correction=0)
        return values.numel(), *(map(float, (mean, var)) if values.is_cpu else (mean, var))
    if values.is_cpu:
        return _moments(values[mask], None)
    number = mask.sum()
    mean = values.where(mask, 0.0).sum() / number
    return number, mean, (values - mean).square().where(mask, 0.0).sum() / number
