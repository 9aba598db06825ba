"""Collectors: `VectorCollector` steps Gymnasium environments and yields TorchRL's batch layout."""

from __future__ import annotations

from .restore import Restore
from .vector import VectorCollector

__all__ = ["Restore", "VectorCollector"]
