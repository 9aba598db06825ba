"""Multi-agent environments (PettingZoo, VMAS), in TorchRL's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from ..agent_groups import AgentGroup as AgentGroup
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
