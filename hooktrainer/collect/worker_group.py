"""Environments in processes of their own, stepped in stages."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec

from ..base.worker import Channel, Worker, WorkerPool
from ..errors import ConfigError, as_failure
from .action_format import ActionFormat
from .buffers import Row, StepBuffers, shared_arrays, unnamed_file
from .episodes_collector import Workers
from .group import EnvGroup, EpisodeSeeds, Finished, GroupOptions, Restore, check_alike
from .make_group import Envs, Source, VectorizationMode, make_group, source_of
from .spaces import Array, ObservationLayout
from .vector_group import is_envpool


class WorkerGroup(EnvGroup):
    """An `EnvGroup` whose environments step in processes of their own, side by side.

    The processes write observations and rewards into memory they share with this one; actions go
    to them, and the ends of episodes come back, through a pipe. Each process has environments of
    every stage, so that it steps those of one while the policy acts for those of another.
    """

    def __init__(
        self,
        env: Envs,
        num_envs: int | None,
        options: GroupOptions,
        env_kwargs: Mapping[str, Any] | None,
        mode: VectorizationMode | None,
        workers: Workers,
    ) -> None:
        source, count = envs_to_share(env, num_envs, workers.number, workers.stages)
        self.stages = split(slice(0, count), workers.stages)
        by_stage = [split(stage, workers.number) for stage in self.stages]
        self._shares = [list(own) for own in zip(*by_stage, strict=True)]  # by worker and stage
        self._pool = WorkerPool()
        made = [(source, own, options, env_kwargs, mode) for own in self._shares]
        by_worker = start_workers(self._pool, EnvWorker, self._shares, made, workers.timeout)
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
        self.has_gaps = first.has_gaps
        self.began = np.zeros(self.num_envs, bool)

    def first_mask(self) -> Any:
        return self._ask_all("first_mask", lambda w: ())[0]

    def prepare(
        self, layout: ObservationLayout, action_format: ActionFormat, horizon: int
    ) -> StepBuffers:
        file = unnamed_file()
        made = layout.leaves, self.num_envs, horizon, len(self.info_keys)
        buffers = StepBuffers(*made, partial(shared_arrays, file))
        for child in self._pool:
            child.send(call("prepare", layout, action_format, made))
            child.give_file(file)
        for child in self._pool:
            child.receive()
        os.close(file)
        return buffers

    def reset(self, row: Row) -> None:
        seed = self.seeds.seed
        self._ask_all("reset", lambda w: (seed, [self.episodes[s] for s in self._shares[w]]))
        self.episodes = [episode + 1 for episode in self.episodes]

    def step(self, actions: Array, row: Row) -> list[Finished]:
        for stage, envs in enumerate(self.stages):
            self.send(stage, actions[envs], row)
        return [end for stage in range(len(self.stages)) for end in self.receive(stage)]

    def send(self, stage: int, actions: Array, row: Row) -> None:
        start = self.stages[stage].start
        for w, own in enumerate(self._shares):
            part = actions[own[stage].start - start : own[stage].stop - start]
            self._pool[w].send(pickle.dumps(("step", (stage, row.index, part))))

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
        self,
        episodes: Sequence[int],
        snapshots: Sequence[Any],
        actions: Sequence[Array | None],
        row: Row,
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


def envs_to_share(env: Envs, num_envs: int | None, workers: int, stages: int) -> tuple[Source, int]:
    """The source of the environments, and their number."""
    if isinstance(env, gym.vector.VectorEnv) or is_envpool(env):
        raise ConfigError(
            "A vector environment that was made already cannot be shared by several processes: "
            "give an environment id or a factory, or leave out workers."
        )
    source, count = source_of(env, num_envs)
    if count < workers * stages:
        raise ConfigError(
            f"num_envs={count} with workers={workers} and stages={stages}: each process needs "
            f"an environment for each stage, so at least {workers * stages}."
        )
    return source, count


def start_workers(
    pool: WorkerPool,
    make: Callable[..., Any],
    shares: Sequence[Sequence[slice]],
    args: Sequence[tuple[Any, ...]],
    timeout: float,
) -> list[Any]:
    """Start a process for each share of the environments; what ``facts()`` of each returns."""
    try:
        for w, (own, given) in enumerate(zip(shares, args, strict=True)):
            name = f"worker {w} (environments {', '.join(map(_words, own))})"
            pool.append(Worker(name, serve, make, *given, timeout=timeout))
        return [child.receive_object() for child in pool]
    except BaseException:
        pool.close()
        raise


def split(whole: slice, number: int) -> list[slice]:
    """A range cut into parts as equal as can be, the larger ones first."""
    sizes = [len(part) for part in np.array_split(range(whole.start, whole.stop), number)]
    ends = (whole.start + np.cumsum(sizes)).tolist()
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _words(share: slice) -> str:
    last = share.stop - 1
    return f"{share.start}-{last}" if last > share.start else f"{last}"


def call(name: str, *args: Any) -> bytes:
    """The message by which a process is to call a method of what it serves."""
    return cloudpickle.dumps((name, args))


def serve(channel: Channel, make: Callable[..., Any], *args: Any) -> None:
    """Make environments, send their ``facts()``, then do as told until the connection ends."""
    torch.set_num_threads(1)
    served = make(*args)
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
    has_gaps: bool


class EnvWorker:
    """A group of environments for each stage, which writes to shared memory."""

    def __init__(
        self,
        source: Any,
        shares: Sequence[slice],
        options: GroupOptions,
        env_kwargs: Mapping[str, Any] | None,
        mode: VectorizationMode | None,
    ) -> None:
        self._shares = shares
        self._groups: list[EnvGroup] = []
        one_for_all = isinstance(source, EnvSpec) or callable(source)
        seeds = options.seeds
        for share in shares:
            own = replace(options, seeds=EpisodeSeeds(seeds.seed, seeds.first_env + share.start))
            part = source if one_for_all else source[share]
            count = share.stop - share.start
            self._groups.append(make_group(part, count, own, env_kwargs, mode))

    def facts(self) -> list[Facts]:
        return [
            Facts(g.names, g.restores, g.observation_space, g.action_space, g.has_gaps)
            for g in self._groups
        ]

    def first_mask(self) -> Any:
        return self._groups[0].first_mask()

    def each(self, name: str, *args: Any) -> list[Any]:
        return [getattr(group, name)(*args) for group in self._groups]

    def prepare(
        self,
        file: int,
        layout: ObservationLayout,
        action_format: ActionFormat,
        made: tuple[Any, int, int, int],
    ) -> None:
        """Prepare the groups, and map the memory of the `StepBuffers` ``made`` in ``file``."""
        self.each("prepare", layout, action_format, 0)
        buffers = StepBuffers(*made, partial(shared_arrays, file))
        os.close(file)
        self._rows = [buffers.rows_of(share) for share in self._shares]

    def reset(self, seed: int, episodes: Sequence[Sequence[int]]) -> None:
        self.each("seed", seed)
        for group, rows, before in zip(self._groups, self._rows, episodes, strict=True):
            group.episodes = list(before)
            group.reset(rows[-1])

    def step(self, stage: int, t: int, actions: Array) -> tuple[list[Finished], Array | None]:
        group = self._groups[stage]
        finished = group.step(actions, self._rows[stage][t])
        return finished, group.began if group.has_gaps else None

    def restore(self, seed: int, states: Sequence[tuple[Any, Any, Any]]) -> list[list[int]]:
        self.each("seed", seed)
        return [
            group.restore(*state, rows[-1])
            for group, rows, state in zip(self._groups, self._rows, states, strict=True)
        ]

    def close(self) -> None:
        for group in self._groups:
            group.close()
