"""`EpisodesCollector`: what all collectors have that step environments, whatever these are."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type

from ..base.checks import check_count
from ..base.words import ranges
from ..errors import ConfigError, StateMismatchError, as_failure
from ..loop.timing import Timing
from .collector import TIMEOUT, Collector, Resumes
from .rollout import AnyRollout

_TRIAL_STEPS = 500


class Workers(NamedTuple):
    """Number of processes that step the environments, or 0; see `Collector.use_workers`."""

    number: int = 0
    stages: int = 1
    timeout: float = TIMEOUT


class EpisodesCollector(Collector):
    """A collector whose environments play numbered episodes.

    An episode is a function of the run's seed, the environment's index among all of the run, and
    its own number. So each share of the environments plays the episodes it would play in the
    whole, and after a resharding no episode is played twice.

    A subclass makes the environments and returns what steps them (`_make`).
    """

    num_envs: int
    frames_per_batch: int
    frame_skip: int
    device: torch.device
    seed: int
    _envs: Any  # an `EnvGroup`, a `TensorWorld` or an `AgentsWorld`
    _live: tuple[str, ...] = ("_rollout",)  # attributes that are made again in a copy
    _restore_episodes = True
    _make_rollout: Callable[[Any], AnyRollout]

    def __init__(
        self,
        policy: Any,
        frames_per_batch: int,
        total_frames: int,
        seed: int,
        init_random_frames: int,
        exploration_type: InteractionType,
        device: torch.device | str | None,
        policy_device: torch.device | str | None = None,
        first_env: int = 0,
    ) -> None:
        check_count("frames_per_batch", frames_per_batch)
        check_count("init_random_frames", init_random_frames, least=0)
        if total_frames != -1:
            check_count("total_frames", total_frames)
        if policy is not None and not (callable(policy) or hasattr(policy, "act")):
            raise ConfigError(
                f"policy={policy!r} cannot act: give a function, a module, or an object with act()."
            )
        self.policy = policy
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.init_random_frames = init_random_frames
        self.exploration_type = exploration_type
        self.seed = seed
        self.timing = Timing()
        if policy_device is None and isinstance(policy, torch.nn.Module):
            policy_device = next((parameter.device for parameter in policy.parameters()), None)
        self._computes = torch.device(policy_device or "cpu")
        self.device = self._computes if device is None else torch.device(device)
        self._first_env = first_env
        self._warm_up_frames = init_random_frames  # those to be collected here
        self._shares = 1  # how many collectors have as many environments, this one included
        self._attributes: dict[str, Any] = {}  # set since the environments were made
        self._workers = Workers()  # asked for
        self._rollout: AnyRollout | None = None

    @abstractmethod
    def _make(self, num_envs: int | None, workers: Workers) -> None:
        """Make the environments; set ``num_envs`` and ``_make_rollout``."""

    def _open(self, num_envs: int | None, workers: Workers = Workers()) -> None:  # noqa: B008
        """Make environments that have played nothing yet."""
        self._make(num_envs, workers)
        try:
            self._horizon, rest = divmod(self.frames_per_batch, self.num_envs)
            if rest:
                raise ConfigError(
                    f"frames_per_batch={self.frames_per_batch} is not a multiple of num_envs="
                    f"{self.num_envs}: the next one is {(self._horizon + 1) * self.num_envs}."
                )
            self._started = workers  # those that step the environments
            self._closed = False
            self.frames = 0
            self.set_seed(self.seed)
        except BaseException:
            self._envs.close()
            raise

    @property
    def unsaved(self) -> str | None:
        if not (self._envs.lost and self._restore_episodes):
            return None
        return (
            f"A resumed run cannot restore the running episodes: {self._envs.lost}. It begins new "
            "ones; all else is exact."
        )

    def _try_infos(self, **changes: Any) -> None:
        """Play an episode of one environment, or its beginning: a missing info key is refused."""
        trial = object.__new__(type(self))
        alone = {"policy": None, "frames_per_batch": 1, "timing": Timing(), "_workers": Workers()}
        vars(trial).update(vars(self), **alone, **changes)
        trial._open(1)
        try:
            for _ in range(_TRIAL_STEPS):
                if bool(trial.collect()["next", "done"].any()):
                    break
        finally:
            trial.shutdown()

    def _ready(self) -> AnyRollout:
        self.start()
        if self._rollout is None:
            self._rollout = self._make_rollout(self)
        return self._rollout

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        """``"exactly"``, unless there are episodes that cannot be restored."""
        return "partly" if self._envs.lost else "exactly"

    @property
    def episodes(self) -> list[int]:
        """For each environment the index of its running episode; -1 before the first."""
        return list(self._envs.episodes)

    def collect(self) -> TensorDict:
        """Collect one batch, even beyond ``total_frames``.

        If it fails, the running episodes are abandoned: the next batch begins with new ones.
        """
        rollout = self._ready()
        steps, warm_up = self.frames // self.num_envs, self.frames < self._warm_up_frames
        try:
            with torch.no_grad(), set_interaction_type(self.exploration_type):
                batch = rollout.collect(self.timing, steps, warm_up)
        except StopIteration as error:  # else iterating would end quietly
            raise as_failure(error, self.frames) from error
        self.frames += self.frames_per_batch
        return batch

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        check_count("seed", seed, least=0)
        self.seed = seed
        self._envs.seed(seed)
        # With it go the generator of random actions and hidden states.
        self._rollout = None
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        if self._rollout is not None:
            self._rollout.is_running = False

    def start(self) -> None:
        """Start the processes that `use_workers` requested, if they have not started yet."""
        self._check_open()
        if self._started != self._workers:
            state = self.state_dict()
            self._envs.close()
            self._open(self.num_envs, self._workers)
            self.load_state_dict(state)

    def use_workers(self, workers: int, stages: int = 1, *, timeout: float = TIMEOUT) -> None:
        check_count("workers", workers, least=0)
        check_count("stages", stages)
        self._check_workers(self.num_envs, workers, stages)
        self._workers = Workers(workers, stages, timeout) if workers else Workers()

    def _check_workers(self, num_envs: int, workers: int, stages: int) -> None:
        super().use_workers(workers, stages)

    def shard(self, rank: int, world_size: int) -> None:
        """Keep only the environments of one of several processes that collect together.

        Each has as many; together they play the episodes that one process would play with all of
        them. ``init_random_frames`` stays that of all of them together.
        """
        self.check_shares(world_size)
        self.shutdown()
        self.num_envs //= world_size
        self._first_env += rank * self.num_envs
        self._shares *= world_size
        self._warm_up_frames //= world_size
        self.frames_per_batch //= world_size
        if self.total_frames > 0:
            self.total_frames //= world_size
        self._take_share(rank)
        self._open(self.num_envs)

    def _take_share(self, rank: int) -> None:
        """Divide what else belongs to single environments."""

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to resume from when the environments are shared out otherwise than before."""
        states = [share for state in states for share in shares_of(state)]
        episodes: list[int] = [episode for state in states for episode in state["episodes"]]
        number = self._shares * self.num_envs
        if len(episodes) != number:
            raise StateMismatchError(
                f"The saved collector has {len(episodes)} environments, this one {number}."
            )
        frames = sum(state["frames"] for state in states)
        return {
            "frames": frames // self._shares,
            "seed": states[0]["seed"],
            "episodes": episodes[self._first_env :][: self.num_envs],
            "attributes": dict(states[0]["attributes"]),
            "rollout": None,
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List whether the state is of another number of environments, or was collected ahead."""
        if OVERLAP in saved:
            return [
                "the saved collector had collected ahead: give --overlap as before, or --overlap 0 "
                "and --allow-change overlap, which begins with the batches that it had in hand"
            ]
        if "episodes" not in saved:
            return ["the state is that of a collector of another kind"]
        number = len(saved["episodes"])
        here = self.num_envs
        return [] if number == here else [f"num_envs is {here} here and {number} in the state"]

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any] | None:
        """The state by which this many environments resume; each begins a new episode.

        ``None`` for one share of several, which does not know what the others have played, and
        where episodes are not counted.
        """
        own = collector_state(saved)
        if "episodes" not in own or self._shares > 1 or not self._envs.shares:
            return None
        begun = [*own["episodes"], *[-1] * self.num_envs]
        return {**own, "episodes": begun[: self.num_envs], "rollout": None}

    def state_dict(self) -> dict[str, Any]:
        return {
            "frames": self.frames,
            "seed": self.seed,
            "episodes": list(self._envs.episodes),
            "attributes": dict(self._attributes),
            "rollout": self._rollout and self._rollout.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in this process or another.

        Environments that cannot be restored begin a new episode, with a warning.
        """
        for line in self.mismatches(state_dict):
            raise StateMismatchError(line)
        for name, value in state_dict["attributes"].items():
            self.set_attribute(name, value)
        saved = state_dict["rollout"]
        if saved is not None:
            self._ready().check(saved)
        self.set_seed(state_dict["seed"])
        self.frames = state_dict["frames"]
        self._envs.episodes = list(state_dict["episodes"])
        lost = [] if saved is None else self._ready().load_state_dict(saved)
        if lost and self._restore_episodes:
            warnings.warn(
                f"The environments {ranges(lost)} begin a new episode, since their state cannot be "
                "restored: the resumed run differs from one that was never interrupted.",
                stacklevel=2,
            )

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, which begins a new episode; part of the state."""
        self.start()
        self._set_in_envs(name, value)
        self._attributes[name] = value
        self.reset()

    def _set_in_envs(self, name: str, value: Any) -> None:
        raise ConfigError(f"{type(self).__name__} sets no attributes of its environments.")

    def _close(self) -> None:
        self._envs.close()

    close = Collector.shutdown

    def __getstate__(self) -> dict[str, Any]:
        # The rows of the buffers are views, and environments may hold what cannot be copied.
        live = dict.fromkeys(self._live)
        return self.__dict__ | live | {"timing": Timing(), "saved": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, closed = state.pop("saved"), state["_closed"]
        self.__dict__.update(state)
        self._open(self.num_envs)
        self.load_state_dict(saved)
        if closed:
            self.shutdown()

    def __repr__(self) -> str:
        number, stages, _ = self._workers
        workers = f", workers={number}" if number else ""
        workers += f", stages={stages}" if number and stages > 1 else ""
        return (
            f"{type(self).__name__}({self._envs.name}, num_envs={self.num_envs}, frames_per_batch="
            f"{self.frames_per_batch}, total_frames={self.total_frames}, seed={self.seed}, "
            f"frames={self.frames}{workers})"
        )


def shares_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the collectors of which one was put together; itself if it was not."""
    if "workers" in state:
        return [share["collector"] for share in state["workers"]]
    return [collector_state(state)]


OVERLAP = "overlap"
"""Key of the state by which that of an `OverlappedCollector` is known."""


def collector_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The collector's own state, counting only what was handed out.

    Batches that were collected ahead are left out: the episodes they are of are not played again.
    """
    if OVERLAP not in state:
        return state
    own = dict(state["collector"])
    if "frames" in own:
        own["frames"] = state[OVERLAP]["frames"]
    return own
