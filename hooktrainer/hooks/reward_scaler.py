"""Hooks that scale rewards: `RewardScaler` by returns, `RewardNormalizer` by rewards."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.checks import check_fraction
from ..base.tensordicts import mask_of, valid
from ..errors import ConfigError, HookError
from ..loop.hook import DEFAULT, EARLY, LATE
from ..objectives.gae import discounted_suffix_sums
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class RewardScaler(AveragingHook):
    """Divides rewards by the running standard deviation of the discounted return, and clips them.

    The usual scaling of PPO for continuous control (Engstrom et al., 2020, arXiv:2005.12729,
    section 3), as in Gymnasium's ``NormalizeReward``. Register it before the advantages are
    estimated. Logged episode returns are not scaled. Returns continue from batch to batch; in a
    padded batch, whose rows are trajectories, each starts at 0.

    Args:
        gamma: Discount factor of the return.
        clip: Bound of a scaled reward.
        eps: Added to the variance.
        replay: Whether to scale at sampling instead, with the latest statistics, for replay
            buffers.
        group: The group of agents whose rewards are scaled; by default those of one agent, or of
            all together.

    Raises:
        ConfigError: If ``gamma`` is not in ``[0, 1]``.
    """

    at = "batch_process"
    priority = EARLY  # before readers of rewards
    saved_attributes = ("_returns", "_mean", "_var", "_count")

    gamma: float = 0.99
    clip: float = 10.0
    eps: float = 1e-8
    _: KW_ONLY
    replay: bool = False
    group: str | None = None

    def __post_init__(self) -> None:
        check_fraction("RewardScaler: gamma", self.gamma)
        if self.replay:  # after the samplers, which ignore the batch they receive
            scaling = ("process_optim_batch", "scale", LATE)
            self.at = (("batch_process", "observe", EARLY), scaling)  # type: ignore[assignment]
        self._returns = torch.zeros(0, dtype=torch.float64)
        # Numbers, or tensors on the rewards' accelerator.
        self._mean: Any = 0.0
        self._var: Any = 1.0
        self._count: Any = 0.0

    @torch.no_grad()
    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a copy of ``batch``, ``[num_envs, time]``, with scaled rewards."""
        self.observe(batch)
        return self.scale(batch)

    @torch.no_grad()
    def observe(self, batch: TensorDictBase) -> None:
        """Add the rewards of ``batch``, ``[num_envs, time]``, to the statistics."""
        reward, done = (batch.get(self._key(name)).squeeze(-1) for name in ("reward", "done"))
        if self.group is not None:  # whose agents count as environments
            reward, done = (entry.transpose(1, 2).flatten(0, 1) for entry in (reward, done))
        self._update(reward.double(), done, mask_of(batch))

    def _key(self, name: str) -> NestedKey:
        return ("next", name) if self.group is None else ("next", self.group, name)

    def scale(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a copy of ``batch`` with scaled rewards."""
        reward = batch.get(self._key("reward"))
        scaled = (reward / (self._var + self.eps) ** 0.5).clamp(-self.clip, self.clip)
        return batch.copy().set(self._key("reward"), scaled)

    def _update(self, reward: torch.Tensor, done: torch.Tensor, mask: torch.Tensor | None) -> None:
        before = self._returns if mask is None else self._returns[:0]
        values, returns = running_returns(reward, before, self.gamma, done)
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
        self._mean, self._var = self._average_moments(self._mean, self._var)


def _moments(values: torch.Tensor, mask: torch.Tensor | None) -> tuple[Any, Any, Any]:
    """Return number, mean and variance of unmasked values; on an accelerator as tensors."""
    if mask is None:
        mean, var = values.mean(), values.var(correction=0)
        return values.numel(), *(map(float, (mean, var)) if values.is_cpu else (mean, var))
    if values.is_cpu:
        return _moments(values[mask], None)
    number = mask.sum()
    mean = values.where(mask, 0.0).sum() / number
    return number, mean, (values - mean).square().where(mask, 0.0).sum() / number


# -- `RewardNormalizer`.


class RewardNormalizer(AveragingHook):
    """Normalizes the rewards that the loss reads by exponentially decayed statistics.

    The statistics are those of the collected rewards.

    Args:
        decay: Factor of the past sums at each batch.
        scale: Factor applied after normalization.
        eps: Lower bound of the variance.
        log_pbar: Whether the mean and standard deviation are shown in the progress bar.
        reward_key: Key of the reward.
    """

    at = (
        ("batch_process", "update_reward_stats", DEFAULT),
        # after the samplers, which ignore the batch they receive
        ("process_optim_batch", "normalize_reward", LATE),
        ("pre_steps_log", "log_stats", DEFAULT),
    )
    saved_attributes = ("_reward_stats",)

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
        self._reward_stats: dict[str, Any] = {"decay": decay}  # as TorchRL's

    @torch.no_grad()
    def update_reward_stats(self, batch: TensorDictBase) -> None:
        """Add the rewards of the valid steps of ``batch``."""
        reward = valid(batch, self.reward_key).double()
        total, squares = reward.sum(), reward.square().sum()
        self._average([total, squares])
        new = {"sum": total, "ssq": squares, "count": reward.numel()}
        past, decay = self._reward_stats, self.decay
        sums = {name: decay * past.get(name, 0.0) + value for name, value in new.items()}
        self._reward_stats = {"decay": decay, **sums}

    @property
    def mean(self) -> torch.Tensor:
        """Decayed mean of the rewards, a 0-d float64 tensor."""
        stats = self._reward_stats
        if not stats.get("count"):
            raise HookError(
                "RewardNormalizer saw no reward: register update_reward_stats at batch_process."
            )
        return torch.as_tensor(stats["sum"] / stats["count"])

    @property
    def std(self) -> torch.Tensor:
        """Decayed standard deviation of the rewards, a 0-d float64 tensor of at least √eps."""
        mean, count = self.mean, self._reward_stats["count"]
        if count <= 1:
            return torch.full_like(mean, self.eps).sqrt()
        variance = (self._reward_stats["ssq"] - count * mean.square()) / (count - 1)
        return variance.clamp_min(self.eps).sqrt()

    @torch.no_grad()
    def normalize_reward(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a copy of ``batch`` with normalized rewards."""
        reward = batch[self.reward_key]
        normalized = (reward - self.mean.to(reward)) / self.std.to(reward) * self.scale
        return batch.copy().set(self.reward_key, normalized)

    def log_stats(self, batch: TensorDictBase) -> dict[str, Any]:
        """Metrics: mean and standard deviation."""
        return {
            "train/reward_mean": self.mean,
            "train/reward_std": self.std,
            "log_pbar": self.log_pbar,
        }


# -- Running discounted returns.


def running_returns(
    rewards: torch.Tensor, before: torch.Tensor, gamma: float, done: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the discounted sum of all rewards so far, after each step.

    Args:
        rewards: ``[num_envs, time]``.
        before: Sums before the first step, ``[num_envs]``; of another number, they start at 0.
        gamma: Discount factor.
        done: Steps after which the sum restarts, bool ``[num_envs, time]``; ``None`` for none.

    Returns:
        The sums, time first, ``[time, num_envs]``; and the sums that the next step adds to,
        ``[num_envs]``.
    """
    before = before.to(rewards.device)  # from the CPU, if they were restored
    if len(before) != len(rewards):
        before = torch.zeros_like(rewards[:, 0])
    if not rewards.is_cpu:  # backwards in time, without a Python loop
        sums = rewards.T.clone()
        sums[0] += gamma * before
        discount = torch.full_like(sums, gamma)
        if done is not None:
            discount[1:] = discount[1:].where(~done.T[:-1], 0.0)
        sums = discounted_suffix_sums(sums.flip(0), discount.flip(0), 0).flip(0)
        after = sums[-1]
        return sums, after if done is None else after.where(~done[:, -1], 0.0)
    seen = []
    for step in range(rewards.shape[1]):
        before = before * gamma + rewards[:, step]
        seen.append(before)
        if done is not None:
            before = torch.where(done[:, step], 0.0, before)
    return torch.stack(seen), before
