"""`WorkerWorld`: multi-agent environments in worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from ...base.worker import Channel, Worker, WorkerPool
from ...errors import ConfigError, as_failure
from ..collector import TIMEOUT
from .parallel_world import joined_states, part_of_state
from .world import AgentGroup, Entries, World, WorldStep

Array = npt.NDArray[Any]
Make = Callable[[int, int], World]
"""Makes environments, given their number and the index of the first."""


class WorkerWorld:
    """Multi-agent environments divided among worker processes.

    The data and the state equal those of one `ParallelWorld` of all environments.
    """

    shares = True

    def __init__(
        self,
        make: Make,
        num_envs: int,
        workers: int,
        first_env: int = 0,
        device: torch.device | str = "cpu",
        timeout: float = TIMEOUT,
    ) -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)
        ends = np.cumsum([len(part) for part in np.array_split(range(num_envs), workers)]).tolist()
        self._shares = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        self._pool = WorkerPool()
        try:
            for place, share in enumerate(self._shares):
                name = f"worker {place} (environments {share.start}-{share.stop - 1})"
                size = share.stop - share.start
                first = first_env + share.start
                self._pool.add(Worker(name, _serve, make, size, first, timeout=timeout))
            facts = [pickle.loads(c.receive()) for c in self._pool.workers]
        except BaseException:
            self.close()
            raise
        self.name: str
        self.groups: tuple[AgentGroup, ...]
        self.state_space: spaces.Space[Any] | None
        self.lost: str | None
        self.name, self.groups, self.state_space, self.lost = facts[0]
        self._episodes = [-1] * num_envs

    @property
    def episodes(self) -> list[int]:
        """Index of each environment's running episode; -1 before the first."""
        return self._episodes

    @episodes.setter
    def episodes(self, episodes: Sequence[int]) -> None:
        self._episodes = list(episodes)
        self._ask("set_episodes", [self._episodes[share] for share in self._shares])

    def seed(self, seed: int) -> None:
        """Seed all environments and start at their first episodes."""
        self._episodes = [-1] * self.num_envs
        self._ask("seed", [seed] * len(self._shares))

    def reset(self, envs: torch.Tensor | None = None) -> Entries:
        """Reset the environments."""
        begun = np.ones(self.num_envs, bool) if envs is None else envs.cpu().numpy()
        self._episodes = [e + int(b) for e, b in zip(self._episodes, begun, strict=True)]
        return self._joined(self._ask("reset", [begun[share] for share in self._shares]))

    def step(self, actions: Mapping[str, torch.Tensor]) -> WorldStep:
        """Step the environments, the workers in parallel."""
        taken = {name: action.detach().cpu().numpy() for name, action in actions.items()}
        parts = [{name: array[share] for name, array in taken.items()} for share in self._shares]
        answers = self._ask("step", parts)
        return WorldStep(*[self._joined(part) for part in zip(*answers, strict=True)])

    def state_dict(self) -> dict[str, Any]:
        """The state of all environments, in the form of one process's."""
        return joined_states(self._ask("state_dict", [()] * len(self._shares)))

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Replay the running episodes, the workers in parallel.

        Raises:
            StateMismatchError: If a replayed episode ends in another observation.
        """
        self._episodes = list(state["episodes"])
        parts = [part_of_state(state, share) for share in self._shares]
        return all(self._ask("load_state_dict", parts))

    def close(self) -> None:
        """Stop the workers. Safe to call again."""
        self._pool.close()

    def _ask(self, name: str, parts: Sequence[Any]) -> list[Any]:
        """Call a method in all workers with one part each, and return their results."""
        self._pool.settle()
        return self._pool.ask_all(lambda place: cloudpickle.dumps((name, parts[place])))

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Join the workers' arrays, or dicts of arrays, to tensors of all environments."""
        if isinstance(parts[0], dict):
            return {key: self._joined([part[key] for part in parts]) for key in parts[0]}
        return torch.from_numpy(np.concatenate(parts)).to(self.device)


class _Worker:
    """Environments in a worker process, with arrays in place of tensors."""

    def __init__(self, world: World) -> None:
        self.world = world

    def set_episodes(self, episodes: list[int]) -> None:
        self.world.episodes = episodes

    def seed(self, seed: int) -> None:
        self.world.seed(seed)

    def reset(self, envs: Array) -> Any:
        return _arrays(self.world.reset(torch.from_numpy(envs)))

    def step(self, actions: Mapping[str, Array]) -> list[Any]:
        tensors = {name: torch.from_numpy(array) for name, array in actions.items()}
        step = self.world.step(tensors)
        return [_arrays(getattr(step, field.name)) for field in fields(step)]

    def state_dict(self, _: Any) -> dict[str, Any]:
        return self.world.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        return self.world.load_state_dict(state)


def _serve(channel: Channel, make: Make, num_envs: int, first_env: int) -> None:
    """Serve requests until the connection closes."""
    torch.set_num_threads(1)
    worker = _Worker(world := make(num_envs, first_env))
    channel.send_object((world.name, world.groups, world.state_space, world.lost))
    try:
        while True:
            name, part = pickle.loads(channel.receive())
            try:
                channel.send_object(getattr(worker, name)(part))
            except Exception as error:
                channel.send_error(as_failure(error))
    finally:
        world.close()


def _arrays(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _arrays(value) for key, value in tree.items()}
    return tree.numpy()


def check_agents_workers(world: World, num_envs: int, workers: int, stages: int = 1) -> None:
    """Raises ConfigError if the environments cannot be divided among ``workers`` processes."""
    if workers < 0:
        raise ConfigError(f"workers={workers}: pass 0 or more.")
    if stages != 1:
        raise ConfigError(
            f"stages={stages}: all environments of several agents step at once; leave it out."
        )
    if workers and not world.shares:
        raise ConfigError(
            f"workers={workers}: {world.name} is one batch of tensors, which draws the random "
            "numbers of all its environments from one stream, so processes cannot share them: "
            "leave it out, and take more environments."
        )
    if workers > num_envs:
        raise ConfigError(
            f"num_envs={num_envs} with workers={workers}: each process needs an environment "
            "at least."
        )
