"""`AgentsCollector`: steps multi-agent environments and yields batches in TorchRL's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, TensorDict
from tensordict.nn import InteractionType

from ...base.checks import check_count, share_equally
from ...base.space_parts import MASK, Leaf
from ...errors import ConfigError
from ..action_format import Sampler
from ..buffers import Inputs
from ..episodes_collector import EpisodesCollector, Workers
from ..group import random_action_seed
from ..info import InfoKeys, check_info_keys
from ..make_group import is_scenario
from ..worlds.world_actions import WorldActions
from ..worlds.world_collector import WorldCollector, WorldRollout
from .parallel_world import ParallelWorld, pettingzoo_factory
from .vmas import VmasWorld
from .world import AgentGroup, AgentsWorld, Entries, Grouping, agent_leaves


class AgentsCollector(WorldCollector):
    """Collects batches ``[num_envs, time]`` from multi-agent environments.

    Each group of agents is a TensorDict ``[num_envs, time, agents]`` within the batch, as in
    TorchRL: what agents observe, do and get has keys such as ``("agents", "action")`` and
    ``("next", "agents", "reward")``. Keys without a group are of the whole environment:
    ``("next", "done")``, ``"state"``, and as ``("next", "reward")`` the **mean over all agents** of
    all groups, where an agent that has left counts 0. If agents may leave before the episode ends,
    ``("agents", "mask")`` is true of those that still act; the values of the others are padding.

    All counts are in transitions of an environment, however many agents act in it. Arguments that
    are not listed are as for `hooktrainer.VectorCollector`.

    Args:
        env: ``"vmas/<scenario>"``, or a scenario class of VMAS; ``"pettingzoo/<family>/<name>"``,
            or a function that makes a parallel environment of PettingZoo.
        policy: ``None`` for random actions; an object with ``in_keys`` and ``act``, which returns a
            dict with ``(group, "action")`` for each group, such as
            `hooktrainer.networks.AgentsPolicy`; or a TensorDict module.
        groups: Names of the agents by group. By default agents with equal spaces form a group: a
            single group is called ``"agents"``, several by the common prefix of their agents.
        frame_skip: Must be 1: actions are not repeated.
        info_keys: Keys of the agents' ``info``, a number each. Batches hold them in ``"next"`` as
            float32, NaN for agents that do not report one. At an episode's end at least one agent
            has to report each key.
        workers: Number of processes that step PettingZoo environments; 0 for this process. It does
            not change the data.
        device: Device of the batches and of tensor environments; by default the policy's.

    Raises:
        ConfigError: If the arguments are invalid.

    Examples:
        >>> collector = AgentsCollector("vmas/balance", num_envs=4, frames_per_batch=40)
        >>> collector.collect()["agents", "observation"].shape
        torch.Size([4, 10, 3, 16])
    """

    world: AgentsWorld  # type: ignore[assignment]

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
        check_count("num_envs", num_envs)
        if frame_skip != 1:
            raise ConfigError(f"frame_skip={frame_skip}: agents' actions are not repeated.")
        if policy is not None and not hasattr(policy, "in_keys"):
            raise ConfigError(
                f"policy={policy!r:.80} cannot act for several agents: give it in_keys, such as "
                "[('agents', 'observation')], and act(); or use AgentsPolicy."
            )
        keys = check_info_keys(info_keys)
        self._made: dict[str, Any] = {"env_kwargs": env_kwargs, "groups": groups, "info_keys": keys}
        super().__init__(
            env,
            policy,
            num_envs=num_envs,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            seed=seed,
            init_random_frames=init_random_frames,
            exploration_type=exploration_type,
            device=device,
        )
        if keys:
            self._try_infos()
        if workers:
            self.use_workers(workers)

    def _make(self, num_envs: int | None, workers: Workers) -> None:
        assert num_envs is not None
        self._make_rollout = WorldRollout
        self.num_envs = num_envs
        self.frame_skip = 1
        self._envs = self.world = make_world(
            self._env,
            num_envs,
            first_env=self._first_env,
            device=self.device,
            workers=workers,
            **self._made,
        )
        self._actions: Any = AgentsActions(self.world.groups)

    def _leaves(self) -> Sequence[Leaf]:
        world = self.world
        return agent_leaves(world.groups, world.state_space, world.agents_leave)

    def _set_in_envs(self, name: str, value: Any) -> None:
        EpisodesCollector._set_in_envs(self, name, value)  # which refuses

    def _check_workers(self, num_envs: int, workers: int, stages: int) -> None:
        if stages != 1 or workers > num_envs or (workers and not self.world.shares):
            raise ConfigError(
                f"workers={workers}, stages={stages}: {self.world.name} with num_envs={num_envs} "
                "has one stage, and as many processes as environments at most, or none if it is "
                "one batch of tensors."
            )

    @property
    def groups(self) -> tuple[AgentGroup, ...]:
        """The agents, by group."""
        return self.world.groups

    def collect(self) -> TensorDict:
        batch = super().collect()
        for part in (batch, batch["next"]):
            for group in self.groups:
                part[group.name].batch_size = [*batch.batch_size, len(group.agents)]
        return batch

    def check_shares(self, number: int) -> None:
        self._check_independent(number)
        share = share_equally(self.num_envs, number, "num_envs")
        self._check_workers(share, self._workers.number, 1)


def make_world(
    env: Any,
    num_envs: int,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    groups: Grouping | None = None,
    info_keys: InfoKeys = (),
    device: torch.device | str = "cpu",
    first_env: int = 0,
    workers: Workers = Workers(),  # noqa: B008
) -> AgentsWorld:
    """Make multi-agent environments; see `AgentsCollector` for the arguments.

    Raises:
        ConfigError: If there is no such environment.
        MissingPackageError: If a package it needs is not installed.
    """
    if is_scenario(env) or (isinstance(env, str) and env.startswith("vmas/")):
        scenario = env.removeprefix("vmas/") if isinstance(env, str) else env
        return VmasWorld(scenario, num_envs, device, groups, env_kwargs, info_keys)
    kwargs = env_kwargs or {}
    if isinstance(env, str) and env.startswith("pettingzoo/"):
        make, name = pettingzoo_factory(env.removeprefix("pettingzoo/"), kwargs), env
    elif callable(env) and not isinstance(env, str):
        made = getattr(env, "func", env)  # of a functools.partial
        make = partial(env, **kwargs)
        name = getattr(made, "__qualname__", type(made).__name__)
    else:
        raise ConfigError(
            f"env={env!r:.80} is no environment of several agents: give 'vmas/balance', "
            "'pettingzoo/mpe/simple_spread_v3', a scenario class of VMAS, or a function that makes "
            "a parallel environment of PettingZoo."
        )
    return ParallelWorld(make, num_envs, name, groups, info_keys, first_env, device, workers)


class AgentsActions(Sampler):
    """The actions of several agents: a dict by group, ``[num_envs, agents, ...]`` each."""

    def __init__(self, groups: tuple[AgentGroup, ...]) -> None:
        cpu = torch.device("cpu")
        self._of = [(one, WorldActions(one.action_space, True, False, cpu)) for one in groups]
        self.keys: tuple[NestedKey, ...] = tuple((group.name, "action") for group in groups)
        self.format = self

    def find(self, outputs: Mapping[NestedKey, Any]) -> dict[str, Any]:
        return {group.name: outputs[group.name, "action"] for group, _ in self._of}

    def check(self, actions: Mapping[str, Any], num_envs: int) -> None:
        for group, _ in self._of:
            given, agents = list(actions[group.name].shape), len(group.agents)
            wanted = [num_envs, agents, *group.action_format.shape]
            if given != wanted:
                raise ConfigError(
                    f"The policy's {(group.name, 'action')} has shape {given}; {num_envs} "
                    f"environments with {agents} agents whose actions are {group.action_space} "
                    f"need {wanted}."
                )

    def to_world(self, actions: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        return {name: torch.as_tensor(action) for name, action in actions.items()}

    def sampler(self, inputs: Inputs, seed: int, first: int, num: int) -> Sampler:
        self._inputs = inputs
        self._generator = torch.Generator().manual_seed(random_action_seed(seed, first))
        return self

    def __call__(self, t: int, step: int) -> Entries:
        drawn: Entries = {}
        for group, actions in self._of:
            first, masks = self._inputs[group.keys[0]][t], self._inputs.get((group.name, MASK))
            shape = first.shape[:2]
            uniform = torch.rand(shape.numel(), actions.numbers, generator=self._generator)
            mask = None if masks is None else masks[t].flatten(0, 1).cpu()
            action = actions.draw(uniform, mask)
            drawn[group.name, "action"] = action.view(*shape, *action.shape[1:]).to(first.device)
        return drawn

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._generator.set_state(state_dict["generator"].cpu())
