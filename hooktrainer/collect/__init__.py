"""Collecting: the `Collector` contract, `adapt`, and collectors of Gymnasium's environments.

`VectorCollector` steps environments and yields TorchRL's batch layout; `OverlappedCollector` has
another collector collect while the learner optimizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import attach
from .adapt import adapt as adapt  # at once, since the module has the same name

if TYPE_CHECKING:
    from .agents import AgentsCollector as AgentsCollector
    from .collector import Collector as Collector
    from .group import Restore as Restore
    from .overlap import OverlappedCollector as OverlappedCollector
    from .vector import VectorCollector as VectorCollector
    from .worlds import WorldCollector as WorldCollector
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
