"""What runs in a process of a `WorkerGroup`: some environments of every stage."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from ..base.worker import Channel
from ..errors import no_quiet_end
from .action_format import AnyActionFormat
from .buffers import Row, StepBuffers
from .group import EnvGroup, Finished, GroupOptions
from .make_group import Envs, VectorizationMode, make_group
from .restore import Restore
from .seeding import EpisodeSeeds
from .shared_memory import SharedMemory
from .spaces import Array, ObservationLayout

# A step is asked for with the stage and the step of the rollout, followed by the actions' bytes;
# anything else with _CALL in place of the stage, followed by the pickled name and arguments.
STEP = struct.Struct("<Bi")
CALL = 255


@dataclass(frozen=True)
class WorkerTask:
    """The environments of one process.

    Attributes:
        sources: For each stage what `make_group` takes as its environments.
        shares: For each stage the indices of these among all of the group.
        num_envs: How many environments all processes have together.
        options: What a group of all environments would be told.
        env_kwargs: Keyword arguments of the environment, with an id.
        mode: How environments of an id are stepped.
    """

    sources: Sequence[Envs]
    shares: Sequence[slice]
    num_envs: int
    options: GroupOptions
    env_kwargs: Mapping[str, Any] | None
    mode: VectorizationMode | None


@dataclass(frozen=True)
class Facts:
    """What a process says of the environments of one stage."""

    kind: str
    names: Sequence[str]
    restores: Sequence[Restore]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]


def serve(channel: Channel, task: WorkerTask) -> None:
    """Build the environments, then do as told until the connection ends."""
    torch.set_num_threads(1)
    worker = EnvWorker(task)
    channel.send_object(worker.facts())
    try:
        while True:
            message = channel.receive()
            try:
                stage, t = STEP.unpack_from(message)
                if stage != CALL:
                    finished = worker.step(stage, t, message[STEP.size :])
                    channel.send(pickle.dumps(finished) if finished else b"")
                    continue
                name, args = pickle.loads(message[STEP.size :])
                if name == "map":
                    args = (channel.take_file(), *args)
                channel.send_object(getattr(worker, name)(*args))
            except Exception as error:
                channel.send_error(no_quiet_end(error))
    finally:
        worker.close()


class EnvWorker:
    """A group of environments for each stage, which writes to shared memory.

    Args:
        task: Which environments.
    """

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self._groups: list[EnvGroup] = []
        self._rows: list[list[Row]] = []
        self._dtype = np.dtype(np.int64)
        self._shape: tuple[int, ...] = ()
        try:
            for source, share in zip(task.sources, task.shares, strict=True):
                first = task.options.seeds.first_env + share.start
                seeds = EpisodeSeeds(task.options.seeds.seed, first)
                options = replace(task.options, seeds=seeds)
                count = share.stop - share.start
                kwargs, mode = task.env_kwargs, task.mode
                group = make_group(source, count, options, kwargs, mode, of=task.num_envs)
                self._groups.append(group)
        except BaseException:
            self.close()
            raise

    def facts(self) -> list[Facts]:
        """What is known of the environments of each stage."""
        return [
            Facts(g.kind, g.names, g.restores, g.observation_space, g.action_space)
            for g in self._groups
        ]

    def first_info(self) -> dict[str, Any]:
        """The ``info`` of the first environment's first reset."""
        return self._groups[0].first_info()

    def check_info(self) -> None:
        """See `EnvGroup.check_info`."""
        self._groups[0].check_info()

    def bind(self, layout: ObservationLayout, action_format: AnyActionFormat) -> None:
        """See `EnvGroup.bind`."""
        self._layout = layout
        for group in self._groups:
            group.bind(layout, action_format)

    def map(self, descriptor: int, size: int, horizon: int) -> None:
        """Take the memory of a rollout."""
        memory = SharedMemory(size, descriptor)
        memory.close_file()
        num_envs = self._task.num_envs
        infos = len(self._task.options.info_keys)
        buffers = StepBuffers(
            self._layout.leaves, num_envs, horizon, allocate=memory.allocate, infos=infos
        )
        self._rows = [[row.part(share) for row in buffers.rows] for share in self._task.shares]

    def expect(self, dtype: str, shape: tuple[int, ...]) -> None:
        """Note what the bytes of one environment's action mean."""
        self._dtype, self._shape = np.dtype(dtype), shape

    def seed(self, seed: int) -> None:
        """Take up another run's seed."""
        for group in self._groups:
            group.seeds = EpisodeSeeds(seed, group.seeds.first_env)

    def reset(self, episodes: Sequence[Sequence[int]]) -> None:
        """Begin the next episode of every environment, after those given."""
        for group, rows, before in zip(self._groups, self._rows, episodes, strict=True):
            group.episodes = list(before)
            group.reset(rows[-1])

    def step(self, stage: int, t: int, actions: bytes) -> list[Finished]:
        """Step the environments of a stage."""
        group = self._groups[stage]
        array: Array = np.frombuffer(actions, self._dtype).reshape(group.num_envs, *self._shape)
        return group.step(array, self._rows[stage][t])

    def snapshots(self) -> list[list[str | None]]:
        """See `EnvGroup.snapshots`; by stage."""
        return [group.snapshots() for group in self._groups]

    def restore(self, states: Sequence[tuple[Any, Any, Any]]) -> list[list[int]]:
        """See `EnvGroup.restore`; by stage."""
        return [
            group.restore(*state, rows[-1])
            for group, rows, state in zip(self._groups, self._rows, states, strict=True)
        ]

    def set_attribute(self, name: str, value: Any) -> None:
        """See `EnvGroup.set_attribute`."""
        for group in self._groups:
            group.set_attribute(name, value)

    def close(self) -> None:
        """Close the environments."""
        for group in self._groups:
            group.close()
