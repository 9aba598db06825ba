"""`UpdateWeights`: sends the trained weights to the collector."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

from tensordict import TensorDict

from ..base.checks import check_choice, check_count
from ..collect.adapt import weight_schemes
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase
from ..loop.loop import Loop


class UpdateWeights(TrainerHookBase):
    """Updates the weights of a collector's policy.

    Args:
        collector: The collector; its ``update_policy_weights_`` is called.
        update_weights_interval: Number of ``interval_unit`` between two updates.
        policy_weights_getter: Returns the weights; by default the collector reads its policy.
        weight_update_map: Maps destinations in the collector to attribute paths in the trainer,
            such as ``{"policy": "loss_module.actor_network"}``, for several networks.
        trainer: The trainer, if the hook is called without being registered.
        sender: An object with ``update_weights()``, used instead of a collector.
        interval_unit: ``"batches"`` or ``"optim_steps"``.
    """

    saved_attributes = ("counter",)
    phase = "sync_weights"

    def __init__(
        self,
        collector: Any = None,
        update_weights_interval: int = 1,
        policy_weights_getter: Callable[[], Any] | None = None,
        weight_update_map: dict[str, str] | None = None,
        trainer: Loop | None = None,
        *,
        sender: Any = None,
        interval_unit: Literal["batches", "optim_steps"] = "batches",
    ) -> None:
        check_count("update_weights_interval", update_weights_interval)
        check_choice("UpdateWeights: interval_unit", interval_unit, ("batches", "optim_steps"))
        if (collector is None) == (sender is None):
            raise ConfigError("UpdateWeights: pass either a collector or a sender.")
        if sender is not None and (policy_weights_getter or weight_update_map):
            raise ConfigError(
                "UpdateWeights: a sender excludes policy_weights_getter and weight_update_map."
            )
        self.collector = collector
        self.update_weights_interval = update_weights_interval
        self.policy_weights_getter = policy_weights_getter
        self.weight_update_map = weight_update_map
        if trainer is not None:
            self.trainer = trainer
        self.sender = sender
        self.interval_unit = interval_unit
        self.at = "post_optim" if interval_unit == "optim_steps" else "post_steps"
        self.counter = 0  # not a cadence: as in TorchRL, it also works with register_op

    def __call__(self) -> None:
        """Count one unit, and update if due."""
        self.counter += 1
        if self.counter % self.update_weights_interval == 0:
            self.send()

    def send(self) -> None:
        """Update the collector's weights now."""
        if self.is_registered:
            self.trainer.bridge.send(self.collector, self._send)
        else:
            self._send()

    def _send(self) -> None:
        if self.sender is not None:
            self.sender.update_weights()
        elif self.weight_update_map is not None:
            self.collector.update_policy_weights_(weights_dict=self._mapped_weights())
        elif self.policy_weights_getter is not None:
            self.collector.update_policy_weights_(self.policy_weights_getter())
        else:
            self.collector.update_policy_weights_()

    def _mapped_weights(self) -> dict[str, Any]:
        from torchrl.weight_update.weight_sync_schemes import WeightStrategy

        schemes = weight_schemes(self.collector)
        weights = {}
        for destination, path in (self.weight_update_map or {}).items():
            source = attrgetter(path)(self.trainer)
            if destination in schemes:
                strategy = WeightStrategy(extract_as=schemes[destination].strategy_str)
                weights[destination] = strategy.extract_weights(source)
            else:
                weights[destination] = TensorDict.from_module(source)
        return weights

    def on_train_start(self, trainer: Loop) -> None:
        """Send the weights once, which a resumed run has just loaded."""
        self.send()
