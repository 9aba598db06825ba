"""How hooks that were written for another trainer get into the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .cadence import Every
from .hook_points import HookPoint


class HookHandle:
    """What registering an op returns: the way to take it out again."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    def remove(self) -> None:
        """Take the op out of its hook point. Doing it twice is harmless."""
        self._remove()


class Bridge:
    """Serves what was written for another trainer; this one knows no other trainer.

    `hooktrainer.torchrl.hook_bridge` knows TorchRL's.

    Args:
        loop: The loop that it serves.

    Attributes:
        stages: The other trainer's hook points beside the ten, by name.
    """

    stages: Mapping[str, HookPoint] = {}

    def __init__(self, loop: Any) -> None:
        pass

    def place(
        self,
        stage: HookPoint,
        op: Callable[..., Any],
        kwargs: dict[str, Any],
        priority: float,
        every: Every | None,
    ) -> list[HookHandle]:
        """Register ``op``, which is for one of ``stages``, at the points where it belongs."""
        return []

    def op(self, point: HookPoint, op: Callable[..., Any]) -> Callable[..., Any]:
        """What is called at ``point`` for ``op``: it itself, or an `Adapter` around it."""
        return op

    def module(self, name: str, module: Any) -> None:
        """Do what the other trainer does when ``module`` is registered."""

    def part(self, thing: Any) -> Any:
        """What holds the state of a hook, the loss module or the collector; often it itself."""
        return thing

    def send(self, collector: Any, send: Callable[[], None]) -> None:
        """Send a collector something by ``send``; one that is cut off is not waited for."""
        send()

    def only_cleans_up(self, handler: Any) -> bool:
        """Whether a signal's handler only ends the process, and is not missed while training."""
        return False
