"""What agents say in their ``info``, as numbers of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...base.space_parts import MASK
from ...errors import ConfigError
from ..info import InfoKeys, check_info_keys, missing, number
from .groups import AgentGroup
from .world import Entries


def check_agents_info_keys(keys: Any, groups: Sequence[AgentGroup]) -> InfoKeys:
    """Return the keys, or refuse those that are entries of a batch already.

    Args:
        keys: What the user gave.
        groups: The agents.

    Raises:
        ConfigError: If one is taken, or they are not different strings.
    """
    observed = {part for group in groups for key in group.keys for part in key}
    return check_info_keys(keys, observed | {"state", "mask", MASK})


class AgentInfos:
    """What agents said in one step of all environments; NaN of those who said nothing.

    Args:
        keys: Of their infos.
        groups: The agents.
        num_envs: How many environments.
    """

    def __init__(self, keys: InfoKeys, groups: Sequence[AgentGroup], num_envs: int) -> None:
        self._keys = keys
        self._groups = groups
        self._arrays = {
            (group.name, key): np.full((num_envs, len(group.agents)), np.nan, np.float32)
            for group in groups
            for key in keys
        }

    def write(self, env: int, infos: Mapping[str, Any], is_last: bool, name: str) -> None:
        """Write what was said in one environment.

        Args:
            env: Its index.
            infos: By agent, what it said.
            is_last: Whether the episode ended with it: then one agent at least gives every key.
            name: What the environment is called.

        Raises:
            ConfigError: If something is no number, or is not there at an episode's end.
        """
        for key in self._keys:
            gave = False
            for group in self._groups:
                for place, agent in enumerate(group.agents):
                    said = infos.get(agent) or {}
                    if key in said:
                        value = number(key, said[key], f"{name} ({agent})")
                        self._arrays[group.name, key][env, place] = value
                        gave = True
            if is_last and not gave:
                every = {k: v for said in infos.values() for k, v in (said or {}).items()}
                raise ConfigError(missing(key, every, f"all agents of {name}"))

    def entries(self, device: torch.device) -> Entries:
        """``(group, key)``, float32 ``[num_envs, agents]``."""
        return {key: torch.from_numpy(array).to(device) for key, array in self._arrays.items()}


def infos_of_tensors(
    keys: InfoKeys,
    groups: Sequence[AgentGroup],
    infos: Mapping[str, Mapping[str, Any]],
    num_envs: int,
    device: torch.device,
    name: str,
) -> Entries:
    """The same of a simulator whose agents say tensors ``[num_envs]`` or ``[num_envs, 1]``.

    Raises:
        ConfigError: If they are others, or no agent says one.
    """
    entries: Entries = {}
    for key in keys:
        if not any(key in said for said in infos.values()):
            every = {k: v for said in infos.values() for k, v in said.items()}
            raise ConfigError(missing(key, every, f"all agents of {name}"))
        for group in groups:
            columns = [
                _column(key, infos[agent], num_envs, f"{name} ({agent})") for agent in group.agents
            ]
            nothing = torch.full((num_envs,), torch.nan, device=device)
            entries[group.name, key] = torch.stack(
                [nothing if column is None else column for column in columns], 1
            )
    return entries


def mean_over_agents(infos: Entries) -> Entries:
    """By key the mean over all agents that said something, ``[num_envs, 1]``; NaN if none did."""
    by_key: dict[str, list[torch.Tensor]] = {}
    for (_, key), value in infos.items():
        by_key.setdefault(key, []).append(value)
    return {key: torch.cat(parts, 1).nanmean(1, True) for key, parts in by_key.items()}


def _column(key: str, said: Mapping[str, Any], num_envs: int, name: str) -> torch.Tensor | None:
    """What one agent said in all environments, float32 ``[num_envs]``; ``None`` if nothing."""
    if key not in said:
        return None
    value = said[key]
    if (
        not isinstance(value, torch.Tensor)
        or value.shape[:1] != (num_envs,)
        or value.numel() != num_envs
    ):
        found = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} is {found:.60}, and not one number for each of "
            f"the {num_envs} environments. Let the scenario say one, or leave the key out."
        )
    return value.reshape(num_envs).float()
