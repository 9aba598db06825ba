"""Target networks: delayed copies of networks, and their updaters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..base.checks import check_count, check_fraction
from ..errors import ConfigError
from ..networks.layers import copy_network


def target_copy(network: nn.Module) -> Any:
    """Copy a network, with buffers for parameters, which no optimizer trains."""
    network = copy_network(network)
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach())
    return network


def target_copies(*networks: nn.Module) -> tuple[Any, ...]:
    """Copy several networks; the copies share the layers that the originals share."""
    return tuple(target_copy(nn.ModuleList(networks)))


class TargetUpdater:
    """Pairs every ``target_<name>`` of a loss with its ``<name>``.

    Args:
        loss_module: A loss of `hooktrainer.objectives`, not of TorchRL, which has its own updaters.

    Raises:
        ConfigError: If the loss has no target network.
    """

    def __init__(self, loss_module: nn.Module) -> None:
        pairs = [
            (getattr(loss_module, name.removeprefix("target_")), target)
            for name, target in loss_module.named_children()
            if name.startswith("target_")
        ]
        if not pairs:
            raise ConfigError(
                f"{type(loss_module).__name__} has no target network: pass it delay_value=True."
            )
        # Names, not tensors: moving a module to a device replaces its tensors.
        slots = {
            (id(target), name): (source, target, name)  # once, if it is part of several networks
            for pair in pairs
            for source, target in zip(*(network.modules() for network in pair), strict=True)
            if source is not target  # statistics that both share
            for name, _ in target.named_buffers(recurse=False)
        }
        self._slots = list(slots.values())

    def reset(self) -> None:
        """Set every target to its network."""
        self._move_targets(1.0)

    @torch.no_grad()
    def _move_targets(self, tau: float) -> None:
        """Set every target to ``tau * network + (1 - tau) * target``."""
        pairs = [(getattr(s, name), getattr(t, name)) for s, t, name in self._slots]
        moved = [pair for pair in pairs if pair[0].is_floating_point()]
        networks, targets = zip(*moved, strict=True)
        if tau == 1.0:
            torch._foreach_copy_(targets, networks)
        else:
            torch._foreach_lerp_(targets, networks, tau)
        for network, target in pairs:
            if not network.is_floating_point():  # such as the batches a BatchNorm has seen
                target.copy_(network)


class SoftUpdate(TargetUpdater):
    """Moves targets a fraction of the way to their networks at every step (Polyak averaging).

    Lillicrap et al., 2015, arXiv:1509.02971.

    Args:
        loss_module: The loss with the targets.
        tau: The fraction, ``target = tau * network + (1 - tau) * target``.

    Raises:
        ConfigError: If ``tau`` is not in ``[0, 1]``.
    """

    def __init__(self, loss_module: nn.Module, *, tau: float) -> None:
        super().__init__(loss_module)
        self.tau = check_fraction("tau", tau)

    def step(self) -> None:
        """Move the targets; call it after every optimizer step."""
        self._move_targets(self.tau)


class HardUpdate(TargetUpdater):
    """Copies networks to their targets at a fixed interval (Mnih et al., 2015).

    Args:
        loss_module: The loss with the targets.
        value_network_update_interval: Steps between two copies.

    Raises:
        ConfigError: If the interval is not a positive integer.
    """

    def __init__(
        self, loss_module: nn.Module, *, value_network_update_interval: int = 1000
    ) -> None:
        super().__init__(loss_module)
        check_count("value_network_update_interval", value_network_update_interval)
        self.value_network_update_interval = value_network_update_interval
        self.counter = 0

    def step(self) -> None:
        """Count a step and copy if it is due; call it after every optimizer step."""
        self.counter += 1
        # Not only at equality: a resumed run may have a smaller interval than its saved counter.
        if self.counter >= self.value_network_update_interval:
            self._move_targets(1.0)
            self.counter = 0

    def state_dict(self) -> dict[str, int]:
        """Return the steps since the last copy."""
        return {"counter": self.counter}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.counter = state_dict["counter"]
