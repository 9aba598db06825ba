"""Collectors: `VectorCollector` steps Gymnasium environments and yields TorchRL's batch layout.

`OverlappedCollector` has another collector collect while the learner optimizes.
"""

from __future__ import annotations

from .overlap import OverlappedCollector
from .restore import Restore
from .vector import VectorCollector

__all__ = ["OverlappedCollector", "Restore", "VectorCollector"]
