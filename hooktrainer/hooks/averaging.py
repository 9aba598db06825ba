"""Base classes of hooks with tensors that are equal on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError
from ..loop.hook import DEFAULT, EARLY, TrainerHookBase
from ..loop.loop import Loop


class AveragingHook(TrainerHookBase):
    """A hook whose tensors are averaged over the processes that train together.

    Attributes:
        average_over_ranks: Replaces tensors by their mean over the ranks; ``None`` with one rank.
    """

    average_over_ranks: Callable[[Sequence[torch.Tensor]], None] | None = None

    def _average(self, tensors: Sequence[torch.Tensor]) -> None:
        if self.average_over_ranks is not None:
            self.average_over_ranks(tensors)

    def _latest(self, name: str) -> float | None:
        """Return the last value of a metric: the mean over the ranks that have logged it."""
        value = self.trainer.metrics.latest(name)
        if self.average_over_ranks is None:
            return value
        found = [0.0, 0.0] if value is None else [value, 1.0]
        mean = torch.tensor(found, dtype=torch.float64)
        self._average([mean])
        return None if not mean[1] else (mean[0] / mean[1]).item()

    def _average_moments(self, mean: Any, var: Any) -> tuple[Any, Any]:
        """Return mean and variance over all ranks, which have equal shares of the data."""
        if self.average_over_ranks is None:
            return mean, var
        first = torch.as_tensor(mean, dtype=torch.float64).clone()
        second = torch.as_tensor(var, dtype=torch.float64) + first.square()
        self._average([first, second])
        return first, second - first.square()


class LearnedReward(AveragingHook):
    """Base class: rewards each batch by networks that it trains, which are equal on all ranks.

    A subclass sets ``optimizer``; ``_networks``, which move to the device of the loss; and
    ``_logged``, the metrics of the last batch.
    """

    at = (("batch_process", "__call__", EARLY), ("pre_steps_log", "log", DEFAULT))
    optimizer: torch.optim.Optimizer
    _networks: Sequence[nn.Module]
    _logged: dict[str, torch.Tensor]

    def log(self, batch: Any) -> dict[str, torch.Tensor]:
        """Metrics: the mean reward of the batch, and the results of training on it."""
        return self._logged

    def _minimize(self, loss: torch.Tensor, network: nn.Module) -> None:
        """Take an optimizer step with the network's gradients averaged over the ranks."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._average([p.grad for p in network.parameters() if p.grad is not None])
        self.optimizer.step()

    def on_train_start(self, trainer: Loop) -> None:
        """Give all ranks the same networks."""
        self._average([p.detach() for network in self._networks for p in network.parameters()])

    def register(self, trainer: Loop, name: str = "") -> None:
        """Register before readers of rewards; move the networks to the device of the loss.

        Raises:
            ConfigError: If the loss is of agents that learn from a reward of each.
        """
        loss: Any = trainer.loss_module
        if getattr(loss, "reward_by_agent", False):
            raise ConfigError(
                f"{type(self).__name__} changes the reward of all agents together, and "
                "here each agent learns from its own reward: use vdn or qmix."
            )
        super().register(trainer, name)
        weights: Iterable[torch.Tensor] = getattr(loss, "parameters", list)()
        if (weight := next(iter(weights), None)) is not None:
            for network in self._networks:
                network.to(weight.device)
