"""`AgentsCollector`: steps environments of several agents and yields TorchRL's layout of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from tensordict.nn import InteractionType

from ...base.checks import check_count, share_equally
from ...base.space_parts import MASK
from ...errors import ConfigError, StateMismatchError
from ...loop.timing import Timing
from ..episodes_collector import EpisodesCollector, Workers, check_counts, warn_of_lost
from ..group import random_action_seed
from ..info import check_info_keys
from .worker_world import WorkerWorld, check_agents_workers
from .world import AgentGroup, Entries, Grouping, World, WorldStep, mean_over_agents
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


_FLAGS = ("done", "terminated", "truncated")


class AgentsRollout:
    """Steps a world, adds up returns and lengths, and lays out batches.

    Args:
        world: The environments; it is seeded, and begins new episodes.
        policy: What `AgentsCollector` takes.
        horizon: Steps of each environment in a batch.
        seed: Seed of the generator of random actions.
        policy_device: Where the policy computes.
    """

    def __init__(
        self, world: World, policy: Any, horizon: int, seed: int, policy_device: torch.device
    ) -> None:
        self._world = world
        self._horizon = horizon
        self._random = RandomAgents(world.groups, seed)
        self._actor: AgentsActor | RandomAgents = self._random
        if policy is not None:
            self._actor = AgentsActor(policy, world.groups, world.num_envs, policy_device)
        self._entries: Entries | None = None  # observed now; None: new episodes are to begin
        rows, device = world.num_envs, world.device
        self._returns = {
            group.name: torch.zeros(rows, len(group.agents), 1, device=device)
            for group in world.groups
        }
        self._lengths = torch.zeros(rows, 1, dtype=torch.int64, device=device)

    def abandon(self) -> None:
        """The next batch begins with new episodes."""
        self._entries = None

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Collect a batch ``[num_envs, horizon]``. If it fails, running episodes are abandoned.

        Args:
            timing: Where the time goes.
            steps: How many steps each environment made before; of no interest here.
            warm_up: Whether random actions take the place of the policy's.
        """
        actor = self._random if warm_up else self._actor
        before: list[Entries] = []
        after: list[Entries] = []
        written: list[Entries] = []
        entries, self._entries = self._entries, None
        if entries is None:
            entries = self._world.reset()
            self._forget(slice(None))
        spent = dict.fromkeys(("inference", "env"), 0.0)
        for _ in range(self._horizon):
            start = perf_counter()
            outputs = actor.act(entries)
            middle = perf_counter()
            spent["inference"] += middle - start
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
            spent["env"] += perf_counter() - middle
        for name, seconds in spent.items():
            timing.add(f"collect/{name}", seconds)
        with timing.phase("collect/transfer"):
            acted = _stacked(before) | actor.complete(_stacked(written))
            batch = self._batch(acted, _stacked(after))
        self._entries = entries
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The world's state and, unless new episodes are to begin, what else belongs to these."""
        running = None
        if self._entries is not None:
            running = {
                "entries": dict(self._entries),  # which nobody writes into
                "returns": {name: value.clone() for name, value in self._returns.items()},
                "lengths": self._lengths.clone(),
            }
        random = self._random.generator.get_state()
        return {"world": self._world.state_dict(), "running": running, "random": random}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of environments that are not of several agents."""
        if not {"world", "random"} <= state.keys():
            raise StateMismatchError("The saved collector is no AgentsCollector.")

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore what `state_dict` returned."""
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
        """What stands under ``"next"`` beside the observations."""
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
            ends = {
                "terminated": terminated,
                "truncated": truncated,
                "done": terminated | truncated,
            }
            out[name, "reward"] = reward
            out[name, "episode_reward"] = self._returns[name].clone()
            for flag, value in ends.items():
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
        """Entries ``[num_envs, time, ...]`` as a TensorDict with one of its own for each group."""
        shape = next(iter(entries.values())).shape[:2]
        parts: dict[str, Any] = {group.name: {} for group in self._world.groups}
        sizes = {group.name: [*shape, len(group.agents)] for group in self._world.groups}
        for key, value in entries.items():
            if isinstance(key, tuple):
                place = parts.setdefault(key[0], {})
                for name in key[1:-1]:
                    place = place.setdefault(name, {})
                place[key[-1]] = value
            else:
                parts[key] = value
        device = self._world.device
        for name, size in sizes.items():
            parts[name] = TensorDict(parts[name], size, device=device)
        return TensorDict(parts, shape, device=device)


def _merged(envs: torch.Tensor, new: Entries, old: Entries) -> Entries:
    """``new`` in some environments, ``old`` in the others."""
    return {
        key: torch.where(envs.view(-1, *[1] * (value.ndim - 1)), value, old[key])
        for key, value in new.items()
    }


def _stacked(steps: list[Entries]) -> Entries:
    """Entries of several steps, ``[num_envs, ...]`` each, as ``[num_envs, time, ...]``."""
    return {key: torch.stack([step[key] for step in steps], 1) for key in steps[0]}


class AgentsActor:
    """Asks a policy for the actions of all agents, and records what else it writes.

    Args:
        policy: An object with ``in_keys`` and ``act(*inputs)``, which returns a dict by key; if it
            has ``sample`` and ``complete`` as well, the first is called at every step and the other
            once for the whole batch. Or a TensorDict module.
        groups: The agents.
        num_envs: How many environments.
        device: Where the policy computes.

    Raises:
        ConfigError: If the policy has no ``in_keys``.
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
        """What the policy writes for one step, ``[num_envs, ...]``; the actions among it."""
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
        """What is recorded of all steps together, ``[num_envs, time, ...]``."""
        if self._complete is None:
            return outputs
        return {unravel_key(key): value for key, value in self._complete(outputs).items()}

    def _call(self, inputs: Entries) -> Entries:
        batch = TensorDict({}, [self._num_envs], device=self._device)
        for group in self._groups:
            batch[group.name] = TensorDict({}, [self._num_envs, len(group.agents)])
        for key, value in inputs.items():
            batch[key] = value
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
    """Draws actions uniformly among those allowed, from a generator of its own.

    Args:
        groups: The agents.
        seed: Seed of the generator.
    """

    def __init__(self, groups: tuple[AgentGroup, ...], seed: int) -> None:
        self._groups = groups
        self.generator = torch.Generator().manual_seed(seed)

    def act(self, entries: Entries) -> Entries:
        """The actions of one step, ``(group, "action")``, ``[num_envs, agents, ...]``."""
        drawn: Entries = {}
        for group in self._groups:
            first = entries[group.keys[0]]
            mask = entries.get((group.name, MASK))
            action = self._draw(group, tuple(first.shape[:2]), mask)
            drawn[group.name, "action"] = action.to(first.device)
        return drawn

    def complete(self, outputs: Entries) -> Entries:
        """Nothing is added."""
        return outputs

    def _draw(
        self, group: AgentGroup, shape: tuple[int, ...], mask: torch.Tensor | None
    ) -> torch.Tensor:
        space = group.action_space
        if isinstance(space, spaces.Discrete):
            scores = self._uniform(*shape, int(space.n))
            return (scores if mask is None else scores.where(mask.cpu(), -1.0)).argmax(-1)
        if isinstance(space, spaces.MultiDiscrete):
            sizes = torch.as_tensor(np.asarray(space.nvec))
            scores = self._uniform(*shape, int(sizes.sum()))
            if mask is not None:
                scores = scores.where(mask.cpu(), -1.0)
            parts = torch.split(scores, sizes.tolist(), -1)
            return torch.stack([part.argmax(-1) for part in parts], -1)
        if isinstance(space, spaces.MultiBinary):
            return (self._uniform(*shape, *group.action_format.shape) < 0.5).to(torch.int64)
        assert isinstance(space, spaces.Box)  # of which ActionFormat has made sure
        low = torch.from_numpy(np.asarray(space.low)).float().clamp(-1e3, 1e3)
        high = torch.from_numpy(np.asarray(space.high)).float().clamp(-1e3, 1e3)
        return torch.lerp(low, high, self._uniform(*shape, *space.shape))

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator)
