"""Environments in processes of their own, stepped in stages."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

from ..base.checks import check_count
from ..base.endings import TIMEOUT
from ..base.words import ranges
from ..base.worker import Channel, Worker, WorkerPool
from ..errors import as_failure
from .action_format import ActionFormat
from .agent_groups import AgentGroup
from .batched_env import ArrayEnv, EnvOptions, EpisodeSeeds, Finished, Restore, check_alike
from .buffers import Buffers, Kinds, as_arrays, shared_arrays, unnamed_file
from .spaces import Array, ObservationLayout

MakeEnvs = Callable[[Any, int, EnvOptions], ArrayEnv]
"""Makes so many environments of a source."""


class Workers(NamedTuple):
    """Number of processes that step the environments, or 0; see `Collector.use_workers`."""

    number: int = 0
    stages: int = 1
    timeout: float = TIMEOUT


NO_WORKERS = Workers()


def checked_workers(number: int, stages: int, timeout: float = TIMEOUT) -> Workers:
    """The workers of these arguments; without any, stages mean nothing."""
    check_count("workers", number, least=0)
    check_count("stages", stages)
    return Workers(number, stages, timeout) if number else NO_WORKERS


class WorkerEnvs(ArrayEnv):
    """Environments of any kind that step in processes of their own, in parallel.

    The processes write observations and rewards into memory they share with this one; actions go
    to them, and the ends of episodes come back, through a pipe. Each process has environments of
    every stage, so that it steps those of one while the policy acts for those of another.
    """

    def __init__(
        self, make: MakeEnvs, source: Any, count: int, options: EnvOptions, workers: Workers
    ) -> None:
        self.stages = split(slice(0, count), workers.stages)
        by_stage = [split(stage, workers.number) for stage in self.stages]
        self._shares = [list(own) for own in zip(*by_stage, strict=True)]  # by worker and stage
        self._pool = WorkerPool()
        try:
            for w, own in enumerate(self._shares):
                numbers = ", ".join(ranges(range(share.start, share.stop)) for share in own)
                name = f"worker {w} (environments {numbers})"
                made = (make, source, own, options)
                self._pool.append(Worker(name, serve, *made, timeout=workers.timeout))
            by_worker = [child.receive_object() for child in self._pool]
        except BaseException:
            self._pool.close()
            raise
        facts: list[Facts] = [one for stage in zip(*by_worker, strict=True) for one in stage]
        first = facts[0]
        super().__init__(
            [name for fact in facts for name in fact.names],
            [restore for fact in facts for restore in fact.restores],
            options,
            first.observation_space,
            first.action_space,
        )
        check_alike([fact for fact in facts for _ in fact.names])
        self.action_format, self.groups = first.action_format, first.groups
        self.entries = first.entries
        self.has_gaps = first.has_gaps
        self.began = np.zeros(self.num_envs, bool)

    def first_mask(self) -> Any:
        return self._ask_all("first_mask", lambda w: ())[0]

    def prepare(self, horizon: int) -> Buffers:
        layout = self.layout()
        file = unnamed_file()
        made = layout.leaves, self.num_envs, horizon, self.entries
        buffers = Buffers(*made, allocate=partial(shared_arrays, file))
        for child in self._pool:
            child.send(call("prepare", layout, made))
            child.give_file(file)
        for child in self._pool:
            child.receive()
        os.close(file)
        return buffers

    def reset(self) -> None:
        seed = self.seeds.seed
        self._ask_all("reset", lambda w: (seed, [self.episodes[s] for s in self._shares[w]]))
        self.episodes = [episode + 1 for episode in self.episodes]

    def step(self, actions: Any, t: int) -> list[Finished]:
        for stage, envs in enumerate(self.stages):
            self.send(stage, _part(actions, envs), t)
        return [end for stage in range(len(self.stages)) for end in self.receive(stage)]

    def send(self, stage: int, actions: Any, t: int) -> None:
        start, taken = self.stages[stage].start, as_arrays(actions)
        for w, own in enumerate(self._shares):
            part = _part(taken, slice(own[stage].start - start, own[stage].stop - start))
            self._pool[w].send(pickle.dumps(("step", (stage, t, part))))

    def receive(self, stage: int) -> list[Finished]:
        finished: list[Finished] = []
        for w, own in enumerate(self._shares):
            start = own[stage].start
            ended, began = pickle.loads(self._pool[w].receive())
            if self.has_gaps:
                self.began[own[stage]] = began
            for i, final in ended:
                finished.append((start + i, final))
                self.episodes[start + i] += 1
        return finished

    def snapshots(self) -> list[Any]:
        answers = self._ask_all("each", lambda w: ("snapshots",))
        return [state for by_stage in zip(*answers, strict=True) for s in by_stage for state in s]

    def restore(
        self, episodes: Sequence[int], snapshots: Sequence[Any], actions: Sequence[Any]
    ) -> list[int]:
        seed = self.seeds.seed

        def states(w: int) -> tuple[Any, ...]:
            return seed, [(episodes[s], snapshots[s], actions[s]) for s in self._shares[w]]

        self.episodes = list(episodes)
        lost = []
        for w, by_stage in enumerate(self._ask_all("restore", states)):
            for share, envs in zip(self._shares[w], by_stage, strict=True):
                lost += [share.start + i for i in envs]
        for i in lost:
            self.episodes[i] += 1
        return sorted(lost)

    def set_attribute(self, name: str, value: Any) -> None:
        self._ask_all("each", lambda w: ("set_attribute", name, value))

    def close(self) -> None:
        self._pool.close()

    def _ask_all(self, name: str, args: Callable[[int], tuple[Any, ...]]) -> list[Any]:
        self._pool.settle()
        return self._pool.ask_all(lambda w: call(name, *args(w)))


def _part(actions: Any, envs: slice) -> Any:
    """The actions of some environments."""
    if isinstance(actions, dict):
        return {name: action[envs] for name, action in actions.items()}
    return actions[envs]


def split(whole: slice, number: int) -> list[slice]:
    """A range cut into parts as equal as can be, the larger ones first."""
    sizes = [len(part) for part in np.array_split(range(whole.start, whole.stop), number)]
    ends = (whole.start + np.cumsum(sizes)).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def call(name: str, *args: Any) -> bytes:
    """The message that makes a process call a method of its `EnvWorker`."""
    return cloudpickle.dumps((name, args))


def serve(channel: Channel, *args: Any) -> None:
    """Make environments, send their ``facts()``, then serve calls until the connection ends."""
    torch.set_num_threads(1)
    served = EnvWorker(*args)
    try:
        channel.send_object(served.facts())
        while True:
            message = channel.receive()
            try:
                name, given = pickle.loads(message)
                if name == "prepare":
                    given = (channel.take_file(), *given)
                answer = getattr(served, name)(*given)
                if name == "step":  # which is plain and has to be quick
                    channel.send(pickle.dumps(answer))
                else:
                    channel.send_object(answer)
            except Exception as error:
                channel.send_error(as_failure(error))
    finally:
        served.close()


class Facts(NamedTuple):
    """The report of a process about the environments of one stage."""

    names: Sequence[str]
    restores: Sequence[Restore]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    action_format: ActionFormat
    groups: tuple[AgentGroup, ...]
    entries: Kinds
    has_gaps: bool


class EnvWorker:
    """The environments of each stage, which write to shared memory."""

    def __init__(
        self, make: MakeEnvs, source: Any, shares: Sequence[slice], options: EnvOptions
    ) -> None:
        self._shares = shares
        self._stages: list[ArrayEnv] = []
        one_for_all = isinstance(source, str | EnvSpec) or callable(source)
        seeds = options.seeds
        for share in shares:
            own = replace(options, seeds=EpisodeSeeds(seeds.seed, seeds.first_env + share.start))
            part = source if one_for_all else source[share]
            count = share.stop - share.start
            self._stages.append(make(part, count, own))

    def facts(self) -> list[Facts]:
        return [Facts(*(getattr(env, name) for name in Facts._fields)) for env in self._stages]

    def first_mask(self) -> Any:
        return self._stages[0].first_mask()

    def each(self, name: str, *args: Any) -> list[Any]:
        return [getattr(env, name)(*args) for env in self._stages]

    def prepare(
        self, file: int, layout: ObservationLayout, made: tuple[Any, int, int, Kinds]
    ) -> None:
        """Map the memory of the `Buffers` ``made`` in ``file``, and let the environments write."""
        buffers = Buffers(*made, allocate=partial(shared_arrays, file))
        os.close(file)
        for env, share in zip(self._stages, self._shares, strict=True):
            env.attach(layout, buffers.rows(share))

    def reset(self, seed: int, episodes: Sequence[Sequence[int]]) -> None:
        self.each("seed", seed)
        for env, before in zip(self._stages, episodes, strict=True):
            env.episodes = list(before)
            env.reset()

    def step(self, stage: int, t: int, actions: Any) -> tuple[Any, Array | None]:
        env = self._stages[stage]
        finished = env.step(actions, t)
        return finished, env.began if env.has_gaps else None

    def restore(self, seed: int, states: Sequence[tuple[Any, Any, Any]]) -> list[list[int]]:
        self.each("seed", seed)
        return [env.restore(*state) for env, state in zip(self._stages, states, strict=True)]

    def close(self) -> None:
        self.each("close")
