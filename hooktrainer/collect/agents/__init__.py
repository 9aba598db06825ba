"""Multi-agent environments (PettingZoo, VMAS) and their collector, in TorchRL's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .agents_collector import AgentsCollector as AgentsCollector
    from .agents_collector import make_world as make_world
    from .world import AgentGroup as AgentGroup
    from .world import AgentsWorld as AgentsWorld
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
