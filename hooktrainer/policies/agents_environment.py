"""The environment of the policies of several agents: how to make it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .environment import Environment
from .trust import code_of_agents, find_callable

VMAS, PETTINGZOO = "vmas/", "pettingzoo/"


class AgentsEnvironment(Environment):
    """How to make an environment of several agents again, as a parallel one of PettingZoo.

    Its ``id`` is ``"vmas/<scenario>"`` or ``"pettingzoo/<family>/<name>"``; its ``factory`` is a
    scenario class of VMAS, or what makes a parallel environment. Both take ``kwargs``.
    """

    def encode(self) -> dict[str, Any]:
        """Return plain data."""
        return {**super().encode(), "several": True}

    def _is_known(self) -> bool:
        return True

    def _code_of_id(self) -> str | None:
        return code_of_agents(str(self.id), self.kwargs)

    def _make_by_id(self, kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.parallel_world import pettingzoo_factory

        name = str(self.id)
        if name.startswith(VMAS):
            return _vmas(name.removeprefix(VMAS), self.kwargs, kwargs)
        if not name.startswith(PETTINGZOO):
            raise ConfigError(f"{self.name} is no environment of several agents.")
        return pettingzoo_factory(name.removeprefix(PETTINGZOO), {**self.kwargs, **kwargs})()

    def _make_by_factory(self, kwargs: Mapping[str, Any]) -> Any:
        from ..collect.agents.parallel_world import checked_env
        from ..collect.agents.worlds import is_scenario

        factory = find_callable(str(self.factory), str(self.module), self.file)
        if is_scenario(factory):
            return _vmas(factory, self.kwargs, kwargs)
        env = checked_env(factory(**self.kwargs), self.name)
        self._only_render_mode(kwargs)
        if kwargs:
            getattr(env, "unwrapped", env).render_mode = kwargs["render_mode"]
        return env


def _vmas(scenario: Any, own: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Any:
    from ..collect.agents.vmas_parallel import VmasParallel

    return VmasParallel(scenario, **{**own, **kwargs})


def decode_environment(data: Mapping[str, Any]) -> Environment:
    """What ``encode`` of an environment wrote, of one agent or of several.

    Raises:
        KeyError: As `Environment.decode`.
        TypeError: Likewise.
        ValueError: Likewise.
    """
    return (AgentsEnvironment if data.get("several") is True else Environment).decode(data)
