"""Collecting: the `Collector` contract, `adapt`, and the collector of environments.

`VectorCollector` steps environments and yields TorchRL's batch layout; `OverlappedCollector` has
another collector collect while the learner optimizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import attach
from .adapt import adapt as adapt  # at once, since the module has the same name

if TYPE_CHECKING:
    from .agent_groups import AgentGroup as AgentGroup
    from .batched_env import Restore as Restore
    from .collector import Collector as Collector
    from .last_step import LastAction as LastAction
    from .last_step import LastReward as LastReward
    from .overlap import OverlappedCollector as OverlappedCollector
    from .vector_collector import VectorCollector as VectorCollector
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
