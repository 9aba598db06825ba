"""`AgentsCollector`: steps multi-agent environments and yields batches in TorchRL's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from tensordict.nn import InteractionType

from ...base.checks import check_count, share_equally
from ...base.space_parts import MASK
from ...errors import ConfigError, StateMismatchError
from ...loop.timing import Timing
from ..episodes_collector import (
    EpisodesCollector,
    Workers,
    check_counts,
    check_workers,
    warn_of_lost,
)
from ..group import random_action_seed
from ..info import check_info_keys
from ..worlds.world_actions import WorldActions
from .world import AgentGroup, Entries, Grouping, World, WorldStep, mean_over_agents
from .worlds import make_world

_TRIED = 500  # steps in which an episode has to report its infos


class AgentsCollector(EpisodesCollector):
    """Collects batches ``[num_envs, time]`` from multi-agent environments.

    Each group of agents is a TensorDict ``[num_envs, time, agents]`` within the batch, as in
    TorchRL. For a group called ``"agents"`` a batch holds:

    - ``("agents", "observation")`` ``[num_envs, time, agents, ...]``, one entry for each part of a
      dict observation; ``("agents", "action_mask")`` if there are masks; ``("agents", "mask")``
      ``[num_envs, time, agents]`` if agents may leave before the episode ends: which agents still
      act. The values of the others are padding.
    - ``("agents", "action")`` and everything else that the policy writes.
    - ``("next", "agents", ...)``: the next observation (the true final one at an episode's end);
      ``"reward"`` and ``"episode_reward"`` (float32), ``"done"``, ``"terminated"`` and
      ``"truncated"`` (bool), ``[num_envs, time, agents, 1]``.
    - ``("next", "done")``, ``"terminated"``, ``"truncated"`` ``[..., 1]`` of the whole environment;
      ``("next", "reward")`` and ``("next", "episode_reward")``: the **mean over all agents** of all
      groups, where an agent that has left counts 0; ``("next", "step_count")``.
    - the ``info_keys``: ``("next", "agents", key)`` ``[num_envs, time, agents, 1]``, and
      ``("next", key)`` ``[..., 1]``, the mean over the agents that report it.
    - ``"state"`` and ``("next", "state")`` ``[num_envs, time, ...]`` if the environment has a
      global state.

    All counts are in transitions of an environment, however many agents act in it.

    Args:
        env: ``"vmas/<scenario>"``, or a scenario class of VMAS; ``"pettingzoo/<family>/<name>"``,
            or a function that makes a parallel environment of PettingZoo.
        policy: ``None`` for random actions; an object with ``in_keys`` and ``act``, which returns a
            dict with ``(group, "action")`` for each group, such as
            `hooktrainer.networks.AgentsPolicy`; or a TensorDict module.
        num_envs: Number of environments.
        frames_per_batch: Transitions per batch, a multiple of ``num_envs``.
        total_frames: Transitions after which iteration ends; -1 for no limit.
        seed: The run's seed, 0 or more.
        init_random_frames: Number of transitions collected with random actions first.
        env_kwargs: Arguments of the environment.
        groups: Names of the agents by group. By default agents with equal spaces form a group: a
            single group is called ``"agents"``, several by the common prefix of their agents.
        frame_skip: Must be 1: actions are not repeated.
        info_keys: Keys of the agents' ``info``, a number each. Batches hold them in ``"next"`` as
            float32, NaN for agents that do not report one. At an episode's end at least one agent
            has to report each key.
        exploration_type: How the policy's distributions are sampled.
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
        self.world = make_world(
            self._env,
            num_envs,
            first_env=self._first_env,
            device=self.device,
            workers=workers.number,
            timeout=workers.timeout,
            **self._made,
        )

    def _make_rollout(self) -> AgentsRollout:
        seed = random_action_seed(self.seed, self._first_env)
        return AgentsRollout(self.world, self.policy, self._horizon, seed, self._computes)

    def _check_workers(self, num_envs: int, workers: int, stages: int) -> None:
        check_workers(workers, stages)
        if stages != 1:
            raise ConfigError(
                f"stages={stages}: all environments of several agents step at once; leave it out."
            )
        if workers and not self.world.shares:
            raise ConfigError(
                f"workers={workers}: {self.world.name} is one batch of tensors with one stream of "
                "random numbers, so processes cannot share it: leave it out."
            )
        if workers > num_envs:
            raise ConfigError(
                f"num_envs={num_envs} with workers={workers}: each process needs an environment."
            )

    def _try_infos(self) -> None:
        """Play one episode, at most 500 steps, to refuse a missing info key at the start."""
        world = make_world(self._env, 1, **self._made)
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
        """Raises ConfigError if the environments cannot be divided among ``number`` processes."""
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


_FLAGS = ("done", "terminated", "truncated")


class AgentsRollout:
    """Steps multi-agent environments, sums returns and lengths, and lays out batches."""

    def __init__(
        self, world: World, policy: Any, horizon: int, seed: int, policy_device: torch.device
    ) -> None:
        self._world = world
        self._horizon = horizon
        self._random = RandomAgents(world.groups, seed)
        self._actor: AgentsActor | RandomAgents = self._random
        if policy is not None:
            self._actor = AgentsActor(policy, world.groups, world.num_envs, policy_device)
        self._entries: Entries | None = None  # present observations; None: new episodes start
        rows, device = world.num_envs, world.device
        self._returns = {
            group.name: torch.zeros(rows, len(group.agents), 1, device=device)
            for group in world.groups
        }
        self._lengths = torch.zeros(rows, 1, dtype=torch.int64, device=device)

    def abandon(self) -> None:
        """Start the next batch with new episodes."""
        self._entries = None

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Collect a batch ``[num_envs, horizon]``. If it fails, running episodes are abandoned."""
        actor = self._random if warm_up else self._actor
        before: list[Entries] = []
        after: list[Entries] = []
        written: list[Entries] = []
        entries, self._entries = self._entries, None
        if entries is None:
            entries = self._world.reset()
            self._forget(slice(None))
        inference = stepping = 0.0
        for _ in range(self._horizon):
            start = perf_counter()
            outputs = actor.act(entries)
            middle = perf_counter()
            inference += middle - start
            step = self._world.step(
                {group.name: outputs[group.name, "action"] for group in self._world.groups}
            )
            before.append(entries)
            written.append(outputs)
            done = step.terminated | step.truncated
            after.append(step.entries | self._outcome(step, done))
            entries = step.entries
            if bool(done.any()):
                entries = _merged(done, self._world.reset(done), step.entries)
                self._forget(done)
            stepping += perf_counter() - middle
        timing.add("collect/inference", inference)
        timing.add("collect/env", stepping)
        with timing.phase("collect/transfer"):
            acted = _stacked(before) | actor.complete(_stacked(written))
            batch = self._batch(acted, _stacked(after))
        self._entries = entries
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The state of the environments, the random actions and the running episodes."""
        running = None
        if self._entries is not None:
            running = {
                "entries": dict(self._entries),  # never written to
                "returns": {name: value.clone() for name, value in self._returns.items()},
                "lengths": self._lengths.clone(),
            }
        random = self._random.generator.get_state()
        return {"world": self._world.state_dict(), "running": running, "random": random}

    def check(self, state: Mapping[str, Any]) -> None:
        """Raises StateMismatchError if the state is not one of multi-agent environments."""
        if not {"world", "random"} <= state.keys():
            raise StateMismatchError("The saved collector is no AgentsCollector.")

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore a `state_dict`."""
        self._random.generator.set_state(state["random"].cpu())
        goes_on, running = self._world.load_state_dict(state["world"]), state["running"]
        self._entries = None
        if goes_on and running is not None:
            device = self._world.device
            self._entries = {key: value.to(device) for key, value in running["entries"].items()}
            self._lengths.copy_(running["lengths"])
            for name, value in running["returns"].items():
                self._returns[name].copy_(value)
        return []

    def _forget(self, envs: Any) -> None:
        for counter in (self._lengths, *self._returns.values()):
            counter[envs] = 0

    def _outcome(self, step: WorldStep, done: torch.Tensor) -> Entries:
        """The entries of ``"next"`` that are not observations."""
        self._lengths += 1
        out: Entries = {
            "terminated": step.terminated.unsqueeze(-1),
            "truncated": step.truncated.unsqueeze(-1),
            "done": done.unsqueeze(-1),
            "step_count": self._lengths.clone(),
        }
        rewards = []
        for group in self._world.groups:
            name = group.name
            reward = step.rewards[name].unsqueeze(-1)
            self._returns[name] += reward
            rewards.append(reward)
            terminated = step.agents_terminated.get(name, step.terminated.unsqueeze(-1))
            truncated = step.agents_truncated.get(name, step.truncated.unsqueeze(-1))
            out[name, "reward"] = reward
            out[name, "episode_reward"] = self._returns[name].clone()
            for flag, value in zip(
                _FLAGS, (terminated | truncated, terminated, truncated), strict=True
            ):
                out[name, flag] = value.unsqueeze(-1).expand(reward.shape)
        out |= {key: value.unsqueeze(-1) for key, value in step.infos.items()}
        out |= mean_over_agents(step.infos)
        out["reward"] = torch.cat(rewards, 1).mean(1)
        out["episode_reward"] = torch.cat(list(self._returns.values()), 1).mean(1)
        return out

    def _batch(self, now: Entries, following: Entries) -> TensorDict:
        batch = self._place(now)
        for flag in _FLAGS:  # no transition starts at an episode's end
            batch.set(flag, torch.zeros_like(following[flag]))
        batch.set("next", self._place(following))
        return batch

    def _place(self, entries: Entries) -> TensorDict:
        shape = next(iter(entries.values())).shape[:2]
        return _nested(entries, self._world.groups, shape, self._world.device)


def _nested(
    entries: Entries, groups: tuple[AgentGroup, ...], shape: torch.Size, device: torch.device
) -> TensorDict:
    """Entries as a TensorDict with one nested TensorDict a group."""
    placed = TensorDict({}, shape, device=device)
    for group in groups:
        placed[group.name] = TensorDict({}, [*shape, len(group.agents)], device=device)
    for key, value in entries.items():
        placed.set(key, value)
    return placed


def _merged(envs: torch.Tensor, new: Entries, old: Entries) -> Entries:
    """``new`` in the environments ``envs``, ``old`` in the others."""
    return {
        key: torch.where(envs.view(-1, *[1] * (value.ndim - 1)), value, old[key])
        for key, value in new.items()
    }


def _stacked(steps: list[Entries]) -> Entries:
    """Stack steps ``[num_envs, ...]`` to ``[num_envs, time, ...]``."""
    return {key: torch.stack([step[key] for step in steps], 1) for key in steps[0]}


class AgentsActor:
    """Runs a policy for all agents and records its outputs.

    A policy with ``sample`` and ``complete`` has the first called at every step and the second once
    for the whole batch.
    """

    def __init__(
        self,
        policy: Any,
        groups: tuple[AgentGroup, ...],
        num_envs: int,
        device: torch.device,
    ) -> None:
        self._policy = policy
        self._groups = groups
        self._num_envs = num_envs
        self._device = device
        self._checked = False
        self._in_keys: list[NestedKey] = [unravel_key(key) for key in policy.in_keys]
        self._act = getattr(policy, "act", None)
        self._complete = getattr(policy, "complete", None)
        if self._complete is not None:
            self._act = policy.sample

    def act(self, entries: Entries) -> Entries:
        """The policy's outputs of one step, ``[num_envs, ...]``, actions included."""
        if missing := [key for key in self._in_keys if key not in entries]:
            raise ConfigError(
                f"the policy reads {missing}, and the environments give {sorted(map(str, entries))}"
                "; set its in_keys."
            )
        inputs = {key: entries[key].to(self._device) for key in self._in_keys}
        if self._act is not None:
            outputs = {unravel_key(k): v for k, v in self._act(*inputs.values()).items()}
        else:
            outputs = self._call(inputs)
        if not self._checked:
            self._check(outputs)
            self._checked = True
        return outputs

    def complete(self, outputs: Entries) -> Entries:
        """The recorded outputs of all steps, ``[num_envs, time, ...]``."""
        if self._complete is None:
            return outputs
        return {unravel_key(key): value for key, value in self._complete(outputs).items()}

    def _call(self, inputs: Entries) -> Entries:
        batch = _nested(inputs, self._groups, torch.Size([self._num_envs]), self._device)
        written: TensorDictBase = self._policy(batch)
        return {
            unravel_key(key): value
            for key, value in written.items(True, True)
            if unravel_key(key) not in inputs
        }

    def _check(self, outputs: Entries) -> None:
        for group in self._groups:
            key = (group.name, "action")
            if key not in outputs:
                raise ConfigError(
                    f"The policy wrote {sorted(map(str, outputs))}; one key has to be {key}, the "
                    f"actions of {', '.join(group.agents)}."
                )
            given = tuple(outputs[key].shape)
            wanted = (self._num_envs, len(group.agents), *group.action_format.shape)
            if given != wanted:
                raise ConfigError(
                    f"The policy's {key} has shape {list(given)}; {self._num_envs} environments "
                    f"with {len(group.agents)} agents whose actions are {group.action_space} need "
                    f"{list(wanted)}."
                )


class RandomAgents:
    """Draws actions uniformly among the allowed ones, from its own generator."""

    def __init__(self, groups: tuple[AgentGroup, ...], seed: int) -> None:
        cpu = torch.device("cpu")
        self._groups = [(g, WorldActions(g.action_space, True, False, cpu)) for g in groups]
        self.generator = torch.Generator().manual_seed(seed)

    def act(self, entries: Entries) -> Entries:
        """The actions of one step, ``(group, "action")`` ``[num_envs, agents, ...]``."""
        drawn: Entries = {}
        for group, actions in self._groups:
            first, mask = entries[group.keys[0]], entries.get((group.name, MASK))
            shape = first.shape[:2]
            uniform = torch.rand(shape.numel(), actions.numbers, generator=self.generator)
            action = actions.draw(uniform, None if mask is None else mask.flatten(0, 1).cpu())
            drawn[group.name, "action"] = action.view(*shape, *action.shape[1:]).to(first.device)
        return drawn

    def complete(self, outputs: Entries) -> Entries:
        """Return the outputs unchanged."""
        return outputs
