"""`GroupSpec`: of what a collector's environments are made, and where they step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym

from ..base.checks import share_equally
from ..errors import ConfigError
from .collector import TIMEOUT
from .env_errors import explain_env_errors
from .group import EnvGroup, GroupOptions
from .make_group import Envs, VectorizationMode, make_group
from .worker_group import WorkerGroup, envs_to_share


@dataclass(frozen=True)
class GroupSpec:
    """Of what environments are made, and where they step; see `VectorCollector`."""

    env: Envs
    num_envs: int | None
    env_kwargs: Mapping[str, Any] | None
    mode: VectorizationMode | None
    workers: int = 0
    stages: int = 1
    timeout: float = TIMEOUT

    def check(self) -> None:
        """Refuse more workers and stages than there are environments for.

        Raises:
            ConfigError: If there are, or the environments were made already.
        """
        if self.workers:
            envs_to_share(self.env, self.num_envs, self.workers, self.stages)

    def here(self) -> GroupSpec:
        """The same, to step in this process."""
        return replace(self, workers=0, stages=1)

    def open(self, options: GroupOptions) -> EnvGroup:
        """Build the environments, in this process or in workers.

        Raises:
            ConfigError: If they cannot be built.
        """
        with explain_env_errors():
            if not self.workers:
                return make_group(self.env, self.num_envs, options, self.env_kwargs, self.mode)
            return WorkerGroup(
                self.env,
                self.num_envs,
                options,
                workers=self.workers,
                stages=self.stages,
                timeout=self.timeout,
                env_kwargs=self.env_kwargs,
                mode=self.mode,
            )

    def share(self, num_envs: int, rank: int, world_size: int) -> GroupSpec:
        """What one of several collectors has that together are one.

        Args:
            num_envs: How many environments the one has.
            rank: Index of the share.
            world_size: Number of shares.

        Raises:
            ConfigError: If the environments cannot be shared equally, or were made already.
        """
        share = share_equally(num_envs, world_size, "num_envs")
        if isinstance(self.env, gym.vector.VectorEnv):
            raise ConfigError(
                "A vector environment that was made already cannot be shared by several processes: "
                "give VectorCollector an environment id or a factory."
            )
        if isinstance(self.env, (list, tuple)):
            mine = self.env[rank * share : (rank + 1) * share]
            shared = replace(self, env=mine, num_envs=None)
        else:
            shared = replace(self, num_envs=share)
        shared.check()
        return shared
