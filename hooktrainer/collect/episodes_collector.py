"""`EpisodesCollector`: a collector whose environments play numbered episodes, shared by number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .any_world import AnyWorld
from .collector import CollectorBase
from .sharing import differing_envs, resharded, resized


class EpisodesCollector(CollectorBase):
    """What collectors share whose environments play episodes that have numbers.

    An episode is a function of the run's seed, the environment's index among all of the run, and
    its own number. So each share of the environments plays the episodes it would play in the
    whole, and when they are shared out anew, none is played twice.

    Attributes:
        seed: The run's seed.
        frames: Transitions collected so far.
    """

    num_envs: int
    frames_per_batch: int
    seed: int
    _first_env: int  # index of the first environment among all those of the run
    _warm_up_frames: int  # those of `init_random_frames` that are to be collected here
    _shares = 1  # how many collectors have as many environments, this one included
    _attributes: Mapping[str, Any] = MappingProxyType({})  # those that were set in environments
    _closed = False

    @property
    @abstractmethod
    def episodes(self) -> list[int]:
        """For each environment the index of its running episode; -1 before the first."""

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")

    def _take_share(self, rank: int, world_size: int) -> None:
        """Divide all counts, and note where the share begins."""
        self.num_envs //= world_size
        self._first_env += rank * self.num_envs
        self._shares *= world_size
        self._warm_up_frames //= world_size
        self.frames_per_batch //= world_size
        if self.total_frames > 0:
            self.total_frames //= world_size

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to go on with when the environments are shared out otherwise than before.

        Args:
            states: What `state_dict` of each former share returned, in order.

        Returns:
            A state for `load_state_dict` by which each environment begins a new episode, one that
            was not played yet.
        """
        return resharded(states, self.num_envs, self._first_env, self._shares * self.num_envs)

    def position(self) -> dict[str, Any]:
        """Return what `reshard` needs: counters, seed, begun episodes, and what was set in envs."""
        return {
            "frames": self.frames,
            "seed": self.seed,
            "episodes": self.episodes,
            "attributes": dict(self._attributes),
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """Say if the state is that of another number of environments."""
        return differing_envs(saved, self.num_envs)

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any] | None:
        """The state by which this many environments go on; each begins a new episode.

        Returns:
            ``None`` for one share of several, which does not know what the others have played.
        """
        return resized(saved, self.num_envs) if self._shares == 1 else None


class WorldsCollector(EpisodesCollector):
    """What collectors share whose environments are one world, of one agent or of several.

    Attributes:
        world: The environments.
    """

    world: Any

    @abstractmethod
    def _open(self, num_envs: int) -> None:
        """Make a world of so many environments, of which nothing is played yet."""

    @property
    def episodes(self) -> list[int]:
        """For each environment the index of its running episode; -1 before the first."""
        world: AnyWorld = self.world
        return list(world.episodes)

    @property
    def unsaved(self) -> None:
        """Nothing: what cannot be restored was said when the collector was made."""

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one of ``world_size`` equal shares of the environments, before the first batch."""
        self.check_shares(world_size)
        self.shutdown()
        self._take_share(rank, world_size)
        self._open(self.num_envs)

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any] | None:
        """The state by which this many environments go on; each begins a new episode.

        Returns:
            ``None`` for one share of several, which does not know what the others have played, and
            for worlds whose episodes are not counted.
        """
        return super().fitting(saved) if self.world.shares else None

    def shutdown(self) -> None:
        """Close the environments; safe to call again."""
        if not self._closed:
            self._closed = True
            self.world.close()

    close = shutdown

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, closed = state.pop("saved"), state["_closed"]
        self.__dict__.update(state)
        self._open(self.num_envs)
        self.load_state_dict(saved)
        if closed:
            self.shutdown()
