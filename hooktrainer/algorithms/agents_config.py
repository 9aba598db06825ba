"""The fields of a run with several agents, beside those of every algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ..policies.trust import code_of_agents
from .agents_task import AgentsTask
from .algorithm import Algorithm
from .config import JSON


@dataclass(frozen=True, kw_only=True)
class SeveralAgents(Algorithm):
    """Fields of the algorithms for several agents; ``env`` is one of several agents.

    ``"vmas/balance"``, a scenario class of VMAS, ``"pettingzoo/mpe/simple_spread_v3"``, or a
    function that makes a parallel environment of PettingZoo.
    """

    groups: Annotated[Mapping[str, Any], JSON] = field(default_factory=dict)
    """the agents by group; by default those with equal spaces are a group"""
    share_parameters: bool = True
    """whether the agents of a group have one network, or each a network of its own"""

    @classmethod
    def code_in(cls, values: Mapping[str, Any]) -> str | None:
        """Say what an environment and its arguments would import, run or read."""
        env, kwargs = values.get("env"), values.get("env_kwargs", {})
        return super().code_in(values) if env is None else code_of_agents(str(env), kwargs)

    def wrapped(self) -> None:
        """No environment of several agents has usual wrappers."""

    def _task(self, keep: bool) -> AgentsTask:
        return AgentsTask(self, keep, self.groups or None, self.share_parameters)
