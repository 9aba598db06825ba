"""`AgentsCollector`: steps environments of several agents and yields TorchRL's layout of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict.nn import InteractionType

from ...base.checks import check_count, share_equally
from ...errors import ConfigError
from ..episodes_collector import (
    EpisodesCollector,
    Workers,
    check_counts,
    warn_of_lost,
)
from ..group import random_action_seed
from ..info import check_info_keys
from .agents_rollout import AgentsRollout, RandomAgents
from .worker_world import WorkerWorld, check_agents_workers
from .world import AgentGroup, Grouping, World
from .worlds import make_world

_TRIED = 500  # steps in which an environment is asked for its infos


class AgentsCollector(EpisodesCollector):
    """Collects batches ``[num_envs, time]`` from environments of several agents.

    The agents of a group are a dimension, and a group is a TensorDict ``[num_envs, time, agents]``
    within the batch, as in TorchRL. Of a group called ``"agents"`` a batch holds:

    - ``("agents", "observation")`` ``[num_envs, time, agents, ...]``, for a dict observation one
      entry for each of its parts; ``("agents", "action_mask")``, where there are masks;
      ``("agents", "mask")`` ``[num_envs, time, agents]``, where agents may leave before the episode
      ends: which of them still act. What stands at the others means nothing.
    - ``("agents", "action")`` and everything else that the policy writes.
    - ``("next", "agents", ...)``: the observation that the actions led to, the true final one where
      an episode ends; ``"reward"`` and ``"episode_reward"`` (float32), ``"done"``, ``"terminated"``
      and ``"truncated"`` (bool), ``[num_envs, time, agents, 1]``, of each agent.
    - ``("next", "done")``, ``"terminated"`` and ``"truncated"``, ``[..., 1]``, of the whole
      environment; ``("next", "reward")`` and ``("next", "episode_reward")``, the **mean over all
      agents** of all groups, an agent that has left counting 0; ``("next", "step_count")``.
    - what ``info_keys`` names: ``("next", "agents", key)``, ``[num_envs, time, agents, 1]``, and
      ``("next", key)``, ``[..., 1]``, the mean over the agents that say it.
    - ``"state"`` and ``("next", "state")`` ``[num_envs, time, ...]``, where the environment says
      what state it is in as a whole.

    All counts are of transitions of an environment, however many agents act in it.

    Args:
        env: ``"vmas/<scenario>"``, or a scenario class of VMAS; ``"pettingzoo/<family>/<name>"``,
            or a function that makes a parallel environment of PettingZoo.
        policy: What acts; ``None`` for random actions. An object with ``in_keys`` and ``act``,
            which takes these entries and returns a dict with ``(group, "action")`` for each group,
            such as `hooktrainer.networks.AgentsPolicy`; or a TensorDict module.
        num_envs: How many environments.
        frames_per_batch: Transitions of a batch, a multiple of ``num_envs``.
        total_frames: Transitions after which iteration ends; -1 for no end.
        seed: The run's seed, 0 or more.
        init_random_frames: So many transitions are collected with random actions first.
        env_kwargs: Arguments of the environment.
        groups: By a group's name, its agents. By default agents with equal spaces are a group; a
            single one is called ``"agents"``, several are called as their agents' names begin.
        frame_skip: Has to be 1: no action is repeated.
        info_keys: What agents say in their ``info`` and batches hold in ``"next"``, float32: a
            number or an array of one. It may come at every step or only at an episode's end, where
            one agent at least has to give it; of agents that say nothing the entry is NaN.
        exploration_type: How the policy's distributions are sampled.
        workers: How many processes step the environments of PettingZoo, an equal share each; 0 for
            this one. It does not change the data.
        device: Where batches are, and where environments that are tensors are simulated; by default
            where the policy computes.

    Raises:
        ConfigError: If the arguments cannot work.

    Examples:
        >>> collector = AgentsCollector("vmas/balance", num_envs=4, frames_per_batch=40)
        >>> collector.collect()["agents", "observation"].shape
        torch.Size([4, 10, 3, 16])
    """

    frame_skip = 1
    world: World
    _live = ("world", "_rollout")

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        num_envs: int,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int = 0,
        init_random_frames: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        groups: Grouping | None = None,
        frame_skip: int = 1,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        workers: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        check_counts(frames_per_batch, total_frames, init_random_frames, 1)
        check_count("num_envs", num_envs)
        if frame_skip != 1:
            raise ConfigError(
                f"AgentsCollector(frame_skip={frame_skip}): actions of several agents are not "
                "repeated; leave it out."
            )
        if policy is not None and not hasattr(policy, "in_keys"):
            raise ConfigError(
                f"policy={policy!r:.80} cannot act for several agents: give it in_keys, such as "
                "[('agents', 'observation')], and act(); or use AgentsPolicy."
            )
        super().__init__(
            policy,
            frames_per_batch,
            total_frames,
            seed,
            init_random_frames,
            exploration_type,
            device,
        )
        keys = check_info_keys(info_keys)
        self._made: dict[str, Any] = {"env_kwargs": env_kwargs, "groups": groups, "info_keys": keys}
        self._env = env
        self._open(num_envs)
        if keys:
            self._try_infos()
        if workers:
            self.use_workers(workers)
        warn_of_lost(self.world.lost)

    @property
    def _envs(self) -> World:
        return self.world

    def _make(self, num_envs: int | None, workers: Workers) -> None:
        assert num_envs is not None
        self.num_envs = num_envs
        make = partial(_make_share, self._env, self._made)
        if workers.number:
            self.world = WorkerWorld(
                make, num_envs, workers.number, self._first_env, self.device, workers.timeout
            )
        else:
            self.world = make(num_envs, self._first_env, self.device)

    def _make_rollout(self) -> AgentsRollout:
        seed = random_action_seed(self.seed, self._first_env)
        return AgentsRollout(self.world, self.policy, self._horizon, seed, self._computes)

    def _check_workers(self, num_envs: int, workers: int, stages: int) -> None:
        check_agents_workers(self.world, num_envs, workers, stages)

    def _try_infos(self) -> None:
        """Play an episode, or its beginning, in an environment of its own, whose step checks."""
        world = _make_share(self._env, self._made, 1, 0)
        try:
            random = RandomAgents(world.groups, random_action_seed(self.seed, 0))
            entries = world.reset()
            for _ in range(_TRIED):
                actions = random.act(entries)
                step = world.step({g.name: actions[g.name, "action"] for g in world.groups})
                if bool((step.terminated | step.truncated).any()):
                    break
                entries = step.entries
        finally:
            world.close()

    @property
    def groups(self) -> tuple[AgentGroup, ...]:
        """The agents, by group."""
        return self.world.groups

    def check_shares(self, number: int) -> None:
        """Refuse environments that share one stream of random numbers, or cannot be divided."""
        if not self.world.shares:
            raise ConfigError(
                f"{self.world.name} draws the random numbers of all its environments from one "
                f"stream, so {number} processes cannot share them: train in one process, with more "
                "environments."
            )
        share = share_equally(self.num_envs, number, "num_envs")
        self._check_workers(share, self._workers.number, 1)

    def _said(self) -> str:
        agents = ", ".join(f"{len(group.agents)} {group.name}" for group in self.groups)
        return f"{self.world.name}, {agents}, num_envs={self.num_envs}"


def _make_share(
    env: Any, made: Mapping[str, Any], num_envs: int, first_env: int, device: Any = "cpu"
) -> World:
    """Environments, of which a process may have a share."""
    return make_world(env, num_envs, first_env=first_env, device=device, **made)
