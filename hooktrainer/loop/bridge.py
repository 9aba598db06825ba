"""How hooks that were written for another trainer get into the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .cadence import Every
from .hook_points import HookPoint


class HookHandle:
    """What registering an op returns: the way to take it out again."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    def remove(self) -> None:
        """Take the op out of its hook point. Doing it twice is harmless."""
        self._remove()


class Bridge(Protocol):
    """Serves what was written for another trainer; see `hooktrainer.torchrl.bridge`."""

    stages: Mapping[str, HookPoint]

    def place(
        self,
        stage: HookPoint,
        op: Callable[..., Any],
        kwargs: dict[str, Any],
        priority: float,
        every: Every | None,
    ) -> list[HookHandle]:
        """Register ``op``, which is for one of ``stages``, at the points where it belongs."""

    def op(self, point: HookPoint, op: Callable[..., Any]) -> Callable[..., Any]:
        """What is called at ``point`` for ``op``: it itself, or an `Adapter` around it."""

    def module(self, name: str, module: Any) -> None:
        """Do what the other trainer does when ``module`` is registered."""

    def part(self, hook: Any) -> Any:
        """What holds the state of ``hook``, or of the collector; by default it itself."""
