"""`WithMemory`: the fields of algorithms whose policies can remember."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..networks import MemoryTrunk, Policy, StateDependentExploration, memory_for
from ..run.config import Count
from .algorithm import Algorithm
from .config import Word
from .task import Task


@dataclass(frozen=True, kw_only=True)
class WithMemory(Algorithm):
    """Fields of the algorithms whose policies can remember."""

    memory: Annotated[Any, Word("MEMORY")] = None
    """what the policy remembers an episode with: gru, lstm or transformer; in Python also a
    function from a number of features to a Memory; None for no memory"""
    memory_size: Count = 64
    """size of that memory"""
    memory_length: Count = 32
    """steps that a transformer looks back"""

    def _memory_trunk(self, task: Task) -> MemoryTrunk | None:
        """An encoder and the memory behind it; ``None`` without memory."""
        if self.memory is None:
            return None
        encoder, features = task.networks.encoder()
        memory = memory_for(self.memory, features, self.memory_size, self.memory_length)
        return MemoryTrunk(encoder, memory, task.in_keys)


# -- `WithStateDependentExploration`: the fields of algorithms whose noise can follow the state.


@dataclass(frozen=True, kw_only=True)
class WithStateDependentExploration(Algorithm):
    """Fields of the algorithms whose noise can follow the state."""

    sde: bool = False
    """whether noise is a function of the state, held for some steps, as in Raffin et al., 2021"""
    sde_interval: Count | None = 32
    """steps for which it is held, at most to the end of an episode; None for whole episodes"""

    def _explores(self, actor: Policy) -> Any:
        """What collects: the policy, or what explores with it."""
        return StateDependentExploration(actor, self.sde_interval) if self.sde else actor
