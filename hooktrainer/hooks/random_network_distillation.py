"""Reward what has not been seen often: random network distillation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn

from ..base.checks import check_count, check_fraction, check_rate
from ..base.tensordicts import mask_of
from ..loop.hook import EARLY, AveragingHook
from ..networks import RunningNorm, mlp
from .reward_scaler import running_returns

if TYPE_CHECKING:
    from ..loop.loop import Loop


class RandomNetworkDistillation(AveragingHook):
    """Adds a reward for observations that a network cannot predict features of yet.

    Burda, Edwards, Storkey and Klimov, 2018, Exploration by Random Network Distillation,
    arXiv:1810.12894. A target network of random weights, which never change, makes features of the
    next observation; a predictor is trained to make the same. The intrinsic reward of a step is the
    mean squared difference, divided by the running standard deviation of its discounted return,
    which goes on across the ends of episodes. Observations are normalized by their running mean and
    deviation, and clipped to 5. The predictor learns from a batch after that was rewarded.

    The reward that is learned from is the environment's plus ``coeff`` times the intrinsic one.
    There is one value of both: unlike in the paper, which has a second one for intrinsic rewards
    without episodes. Register it before the advantages are estimated, or give it to an algorithm
    in ``hooks=``. Episode returns that are logged are the environment's.

    Logged are ``rnd/reward``, the mean intrinsic reward as it is added, without ``coeff``, and
    ``rnd/loss`` of the predictor.

    Args:
        features: Size of a normalized observation's last dimension.
        coeff: Factor of the intrinsic reward.
        gamma: Discount factor of the intrinsic return.
        target: Makes features of an observation ``[n, features]``; by default a network with two
            hidden layers of 64, 32 features.
        predictor: Makes as many features; by default a network of the same kind.
        lr: Learning rate of the predictor.
        steps: Optimizer steps of the predictor after each batch, each on an equal part of it.
        proportion: Share of the observations that the predictor is shown, chosen at random.
        key: Where the observations are.

    Raises:
        ConfigError: If a number cannot work.

    Examples:
        >>> hook = RandomNetworkDistillation(3, coeff=0.5)
    """

    phase = "rnd"

    def __init__(
        self,
        features: int,
        *,
        coeff: float = 1.0,
        gamma: float = 0.99,
        target: nn.Module | None = None,
        predictor: nn.Module | None = None,
        lr: float = 1e-3,
        steps: int = 4,
        proportion: float = 1.0,
        key: NestedKey = ("next", "observation"),
    ) -> None:
        check_count("RandomNetworkDistillation: features", features)
        check_count("RandomNetworkDistillation: steps", steps)
        self.coeff = check_rate("RandomNetworkDistillation: coeff", coeff)
        self.gamma = check_fraction("RandomNetworkDistillation: gamma", gamma)
        self.proportion = check_fraction("RandomNetworkDistillation: proportion", proportion)
        self.steps = steps
        self.key = key
        self.norm = RunningNorm(features, clip=5.0)
        self.target = target or mlp(features, 32, (64, 64))
        self.predictor = predictor or mlp(features, 32, (64, 64))
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=lr)
        # Of the intrinsic return: its mean, square and count, and that of each environment now.
        self._moments = torch.zeros(3, dtype=torch.float64)
        self._returns = torch.zeros(0, dtype=torch.float64)
        self._said: dict[str, torch.Tensor] = {}

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch``, ``[num_envs, time]``, with the sum of both rewards."""
        device, reward = self._moments.device, batch.get(("next", "reward"))
        seen, mask = batch.get(self.key).to(device, torch.float32), mask_of(batch)
        mask = None if mask is None else mask.to(device)
        data = seen.flatten(0, -2) if mask is None else seen[mask]
        self._look_at(data)
        with torch.no_grad():
            surprise = self._error(self.norm(seen))
        self._add_returns(surprise, mask)
        intrinsic = (surprise / self._deviation()).view(reward.shape)
        counted = intrinsic.flatten() if mask is None else intrinsic[mask].flatten()
        self._said = {"rnd/reward": counted.mean(), "rnd/loss": self._learn(data)}
        return batch.copy().set(("next", "reward"), reward + self.coeff * intrinsic.to(reward))

    def log(self, batch: Any) -> dict[str, torch.Tensor]:
        """Metrics: the mean intrinsic reward of the batch, and the predictor's loss."""
        return self._said

    def _error(self, normalized: torch.Tensor) -> torch.Tensor:
        """How far the features are from those predicted, ``[*batch]``."""
        with torch.no_grad():
            wanted = self.target(normalized)
        return (self.predictor(normalized) - wanted).square().mean(-1)

    def _look_at(self, seen: torch.Tensor) -> None:
        self.norm.update(seen)
        if self.average_over_ranks is not None:
            # Of equal shares the mean of means is that of all; so is that of second moments.
            norm = self.norm
            square = norm.var + norm.mean.square()
            self._average([norm.mean, square])
            norm.var.copy_(square - norm.mean.square())
            norm.refresh()

    def _add_returns(self, reward: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Add the discounted returns of intrinsic rewards, ``[num_envs, time]``, to what is known.

        They go on at an episode's end, and from batch to batch where rows are environments.
        """
        reward = reward.double()
        returns = self._returns
        if mask is not None or len(returns) != len(reward):
            returns = torch.zeros_like(reward[:, 0])
        seen, self._returns = running_returns(reward, returns, self.gamma)
        values = seen.T
        values = values.flatten() if mask is None else values[mask]
        new = torch.stack([values.mean(), values.square().mean()])
        self._average([new])
        count = self._moments[2] + len(values)
        share = len(values) / count
        self._moments[:2] += (new - self._moments[:2]) * share
        self._moments[2] = count

    def _deviation(self) -> torch.Tensor:
        mean, square, _ = self._moments.unbind()
        return (square - mean.square()).clamp_min(1e-12).sqrt() + 1e-8

    def _learn(self, seen: torch.Tensor) -> torch.Tensor:
        """Train the predictor; return the mean of its losses."""
        number = max(1, round(len(seen) * self.proportion))
        order = torch.randperm(len(seen), device=seen.device)[:number]
        total = seen.new_zeros(())
        parts = order.chunk(self.steps)
        for part in parts:
            loss = self._error(self.norm(seen[part])).mean()
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._average([p.grad for p in self.predictor.parameters() if p.grad is not None])
            self.optimizer.step()
            total += loss.detach()
        return total / len(parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the networks, the optimizer and all statistics."""
        return {
            "norm": self.norm.state_dict(),
            "target": self.target.state_dict(),
            "predictor": self.predictor.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "moments": self._moments,
            "returns": self._returns,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.norm.load_state_dict(state_dict["norm"])
        self.target.load_state_dict(state_dict["target"])
        self.predictor.load_state_dict(state_dict["predictor"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        device = self._moments.device
        self._moments = state_dict["moments"].to(device, copy=True)
        self._returns = state_dict["returns"].to(device, copy=True)

    def on_train_start(self, trainer: Loop) -> None:
        """Have all ranks begin with the same networks."""
        for module in (self.target, self.predictor):
            self._average([p.detach() for p in module.parameters()])

    def register(self, trainer: Loop, name: str = "random_network_distillation") -> None:
        """Register at ``batch_process``, before what looks at rewards, and at ``pre_steps_log``.

        The networks are put where those of the loss are.
        """
        trainer.register_module(name, self)
        weights: Iterable[Any] = getattr(trainer.loss_module, "parameters", list)()
        if (weight := next(iter(weights), None)) is not None:
            for module in (self.norm, self.target, self.predictor):
                module.to(weight.device)
            self._moments = self._moments.to(weight.device)
            self._returns = self._returns.to(weight.device)
        trainer.register_op("batch_process", self, priority=EARLY)
        trainer.register_op("pre_steps_log", self.log)
