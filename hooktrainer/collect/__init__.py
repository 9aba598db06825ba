"""What collects: the `Collector` protocol, `adapt`, and collectors of Gymnasium's environments.

`VectorCollector` steps environments and yields TorchRL's batch layout; `OverlappedCollector` has
another collector collect while the learner optimizes. What is named here is imported when it is
used: a trainer needs the protocol, and not Gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapt import adapt
    from .collector import Collector, CollectorBase
    from .overlap import OverlappedCollector
    from .restore import Restore
    from .vector import VectorCollector

__all__ = [
    "Collector",
    "CollectorBase",
    "OverlappedCollector",
    "Restore",
    "VectorCollector",
    "adapt",
]

_AT_HOME = {
    "Collector": ".collector",
    "CollectorBase": ".collector",
    "OverlappedCollector": ".overlap",
    "Restore": ".restore",
    "VectorCollector": ".vector",
    "adapt": ".adapt",
}


def __getattr__(name: str) -> Any:
    if name in _AT_HOME:
        return getattr(import_module(_AT_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
