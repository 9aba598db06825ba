"""`WithStateDependentExploration`: the fields of algorithms whose noise can follow the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..networks import Policy, StateDependentExploration
from ..run.fields import Count
from .algorithm import Algorithm


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
