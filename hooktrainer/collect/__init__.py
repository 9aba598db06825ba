"""What collects: the `Collector` protocol, `adapt`, and collectors of Gymnasium's environments.

`VectorCollector` steps environments and yields TorchRL's batch layout; `OverlappedCollector` has
another collector collect while the learner optimizes. These are imported when they are used: a
trainer needs the protocol, and not Gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .adapt import adapt
from .collector import Collector, CollectorBase

if TYPE_CHECKING:
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
    "OverlappedCollector": ".overlap",
    "Restore": ".restore",
    "VectorCollector": ".vector",
}


def __getattr__(name: str) -> Any:
    if name in _AT_HOME:
        return getattr(import_module(_AT_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
