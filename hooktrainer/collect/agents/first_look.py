"""Whether what agents observe is what their spaces say, where an episode begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.space_parts import MASK
from ...base.words import listed
from ...errors import ConfigError
from ..spaces import ObservationLayout
from .groups import AgentGroup, Spaces

ByAgent = Mapping[str, Any]


class FirstLook:
    """Looks at what ``reset`` of parallel environments returns.

    Args:
        name: What the environments are called.
        groups: The agents.
        agents: Every agent's spaces.
        infos: What a reset said besides: masks in it are those of every reset.

    Raises:
        ConfigError: If a mask has another shape than the actions need.
    """

    def __init__(
        self, name: str, groups: Sequence[AgentGroup], agents: Spaces, infos: ByAgent
    ) -> None:
        self._name = name
        self._group_of = {agent: group for group in groups for agent in group.agents}
        self._layouts = {
            group.name: ObservationLayout(
                agents[group.agents[0]][0],
                _mask_in(infos, group) if group.mask_path == () else None,
                group.action_format.mask_size,
            )
            for group in groups
        }

    def check(self, there: Sequence[str], seen: ByAgent, infos: ByAgent) -> None:
        """Refuse what is not as the spaces say.

        Args:
            there: The agents that act.
            seen: What they observe.
            infos: What was said besides.

        Raises:
            ConfigError: If an agent is unknown, or nothing, or something else, is given of it.
        """
        for agent in there:
            if agent not in self._group_of:
                raise ConfigError(
                    f"{self._name} has the agent {agent!r:.80} after reset(), and possible_agents "
                    f"are {listed(self._group_of)}: name every agent there may be."
                )
            if agent not in seen:
                raise ConfigError(
                    f"reset() of {self._name} gave no observation of {agent}, which acts: give one "
                    f"of each agent in agents; it gave those of {listed(seen) or 'none'}."
                )
            group, info = self._group_of[agent], infos.get(agent) or {}
            whose = f"{self._name} ({agent})"
            if group.mask_path == () and MASK not in info:
                raise ConfigError(
                    f"info[{MASK!r}] of {whose} is missing, and others of {group.name!r} have one: "
                    "let every agent of a group have a mask, at every step, or none."
                )
            self._layouts[group.name].check(seen[agent], info, whose)


def _mask_in(infos: ByAgent, group: AgentGroup) -> Any:
    """An action mask of a group."""
    given = (infos.get(agent) or {} for agent in group.agents)
    return next(info[MASK] for info in given if MASK in info)
