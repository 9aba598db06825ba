"""What collects: the `Collector` protocol, and `CollectorBase`, which fulfils most of it.

A collector is a source of batches. Whatever fulfils the protocol can be given to a trainer, can
collect ahead of the learner (`OverlappedCollector`), can be divided among the processes of a Ray
cluster (`RayCollector`) or among ranks, and is timed and resumed. Derive from `CollectorBase` and
write `collect`; each further ability is a method or two. `hooktrainer.testing.check_collector` says
whether a collector keeps what is promised here. What does not derive from it, such as a list or
another library's collector, is made into one by `hooktrainer.collect.adapt`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from ..base.checks import share_equally
from ..base.tensordicts import is_sharded
from ..errors import ConfigError
from ..loop.timing import Timing

Resumes = Literal["exactly", "partly", "anew"]
"""What becomes of a collector in a run that is resumed; see `Collector.resumes`."""
TIMEOUT: Final = 600.0
"""Seconds to wait for the answer of another process, unless another number is given."""
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Collector(Protocol):
    """A source of batches.

    **Batches.** A batch is a TensorDict of any batch size, usually ``[num_envs, time]``. What
    environments give is in TorchRL's layout: per transition the observation and the action at the
    root, and under ``"next"`` the observation that the action led to, ``"reward"`` (float32
    ``[..., 1]``), ``"done"``, ``"terminated"`` and ``"truncated"`` (bool ``[..., 1]``). Where an
    episode ends, the observation in ``"next"`` is the **true final one**, not the first of the next
    episode. Rows that were padded in time say so in ``("collector", "mask")``. A batch stays as it
    is for as long as it is held: the collector does not write into it again.

    **Counts** are of transitions; each is ``frame_skip`` frames of the environment.

    **Order of calls.** `set_seed`, `load_state_dict`, `shard` and `use_workers` may come before
    `start`, `start` before the first `collect`; `shutdown` is last. Before its first batch a
    collector can be pickled or copied, if it is to work in another process or thread.
    """

    # -- what it says of itself ------------------------------------------------------------------

    @property
    def policy(self) -> Any:
        """What acts: the object whose weights the learner trains; ``None`` if there is none.

        Its ``state_dict`` and ``load_state_dict`` are how a copy of it follows the learner.
        """

    @property
    def num_envs(self) -> int | None:
        """Number of environments: the first dimension of a batch; ``None`` if it is not known."""

    @property
    def frames_per_batch(self) -> int | None:
        """Transitions of a batch; ``None`` if it is not known before."""

    @property
    def total_frames(self) -> int:
        """Transitions after which iteration ends, those of earlier runs included; -1: no end."""

    @property
    def init_random_frames(self) -> int:
        """So many transitions are collected with random actions first; nothing is trained then."""

    @property
    def frame_skip(self) -> int | None:
        """How often the environment repeats each action; ``None``, unknown, is taken for once."""

    @property
    def device(self) -> torch.device | None:
        """Where batches are; ``None`` if it does not say."""

    @property
    def seed(self) -> int | None:
        """The seed it collects with; ``None`` if it has none."""

    @property
    def frames(self) -> int:
        """Transitions collected so far, those of earlier runs included."""

    @property
    def processes(self) -> int:
        """How many processes collect a share of the batch each; 0 if only this one collects."""

    @property
    def replay_buffer(self) -> Any:
        """The replay buffer into which it has written every batch already; usually ``None``."""

    @property
    def resumes(self) -> Resumes:
        """What a resumed run is, as far as the collector is concerned.

        ``"exactly"``: bit for bit the run that was never interrupted, as `check_collector` tests.
        ``"partly"``: its state is saved and restored, but is not all. ``"anew"``: it has no state.
        """

    @property
    def unsaved(self) -> str | None:
        """What a user is to be warned of when checkpoints are made; ``None`` for nothing."""

    # -- collecting ------------------------------------------------------------------------------

    timing: Timing
    """The clock that is told how long its work takes, as ``collect/<part>`` or ``worker/<part>``.

    The trainer sets its own before `start`.
    """

    def register(self, trainer: Any) -> None:
        """Register ops of its own, if it has any, as hooks do."""

    def start(self) -> None:
        """Start what the first batch would have to wait for, such as processes."""

    def collect(self) -> TensorDictBase:
        """Collect the next batch, whatever `total_frames` says.

        Raises:
            StopIteration: If there is none, now and ever.
            RuntimeError: If the collector is shut down.
        """

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield batches until `total_frames` are collected, or there are no more."""

    def set_seed(self, seed: int) -> Any:
        """Start over with this seed: the same seed gives the same batches."""

    def reset(self) -> None:
        """Abandon the running episodes: the next batch begins with new ones."""

    def shutdown(self) -> None:
        """Close everything; safe to call again, and in the middle of a batch."""

    # -- weights in ------------------------------------------------------------------------------

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Bring the policy up to date.

        Args:
            policy_or_weights: A module, a TensorDict of parameters or a state dict to copy from.
                ``None``: `policy` itself was trained, and copies of it are to follow.
        """

    # -- state out and in ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain values, arrays and tensors.

        The policy's parameters and the global random generators are not the collector's to save.
        """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, here or in another process.

        Raises:
            StateMismatchError: If it is that of another collector.
        """

    # -- shared among processes ------------------------------------------------------------------

    def check_shares(self, number: int) -> None:
        """Refuse to be shared among so many processes, if that cannot be done; changes nothing.

        Raises:
            ConfigError: Saying why.
        """

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one of ``world_size`` equal shares; before the first batch.

        The shares together are the whole: each environment is in one of them, and plays the
        episodes it would play in the whole. Batches, `num_envs`, `frames_per_batch` and
        `total_frames` become that much smaller.

        Raises:
            ConfigError: As `check_shares` does.
        """

    def position(self) -> dict[str, Any]:
        """As much of the state as `reshard` needs; small, since it is asked for with every batch.

        When a process dies, another goes on with the share after the last position.
        """

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to go on with when the environments are shared out otherwise than before.

        Args:
            states: What `state_dict` or `position` of every former share returned, in order.

        Returns:
            A state for `load_state_dict`: nothing is collected again that was collected before.
        """

    def use_workers(
        self, workers: int, stages: int = 1, *, at_once: bool = True, timeout: float = TIMEOUT
    ) -> None:
        """Step the environments in processes of its own; before the first batch.

        Args:
            workers: How many processes.
            stages: In how many parts the environments take turns with the policy.
            at_once: Whether they start now; else with `start` or the first batch.
            timeout: Seconds after which a process that does not answer ends the run.

        Raises:
            ConfigError: If that cannot be done.
        """


def _left_out(method: _Method) -> _Method:
    """Mark a method that counts as missing unless a subclass writes it; see `has_state`."""
    method.__isabstractmethod__ = True  # type: ignore[attr-defined]
    return method


class CollectorBase:
    """All of a `Collector` but `collect`: derive from it, and replace what you can do better.

    Without more, a collector can be trained on, timed, and made to collect ahead. Add
    ``state_dict`` and ``load_state_dict``, and it is resumed: exactly, unless you set
    ``resumes = "partly"``. Add ``shard``, and it is divided among ranks and the processes of a Ray
    cluster; a ``num_envs`` that is no multiple of their number is refused, what else cannot be
    divided you refuse in ``check_shares``. Set as attributes what you know of ``num_envs``,
    ``frames_per_batch``, ``frame_skip``, ``policy`` and so on. If you set ``total_frames``, add to
    ``frames`` in ``collect``.

    Examples:
        >>> from tensordict import TensorDict
        >>> class Noise(CollectorBase):
        ...     def collect(self):
        ...         return TensorDict({"observation": torch.randn(4, 8, 2)}, [4, 8])
        >>> [tuple(batch.shape) for batch, _ in zip(Noise(), range(2))]
        [(4, 8), (4, 8)]
    """

    policy: Any = None
    num_envs: int | None = None
    frames_per_batch: int | None = None
    total_frames: int = -1
    init_random_frames: int = 0
    frame_skip: int | None = None
    device: torch.device | None = None
    seed: int | None = None
    frames: int = 0
    processes: int = 0
    replay_buffer: Any = None
    resumes: Resumes = "anew"
    steps_exploration: bool = True
    """Whether iterating steps the policy's exploration schedule; a trainer does it itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "state_dict" in vars(cls) and "resumes" not in vars(cls):
            cls.resumes = "exactly"  # who saves its state says so if it is not all

    @property
    def unsaved(self) -> str | None:
        """What is lost at a resume, in a sentence."""
        return lost_at_resume(type(self), self.resumes)

    @property
    def timing(self) -> Timing:
        """Its own until the trainer gives it another."""
        timing: Timing | None = self.__dict__.get("_timing")
        if timing is None:
            timing = self.__dict__["_timing"] = Timing()
        return timing

    @timing.setter
    def timing(self, timing: Timing) -> None:
        self.__dict__["_timing"] = timing

    def register(self, trainer: Any) -> None:
        """Register nothing."""

    def start(self) -> None:
        """Start nothing."""

    def collect(self) -> TensorDictBase:
        """To be written; see `Collector.collect`."""
        raise NotImplementedError(f"{type(self).__name__} has no collect()")

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield batches until `total_frames` are collected, or there are no more.

        Between two batches the schedule of the policy's exploration is stepped, unless whoever
        iterates has done so.
        """
        schedules = schedules_of(self.policy) if self.steps_exploration else []
        while self.total_frames < 0 or self.frames < self.total_frames:
            try:
                batch = self.collect()
            except StopIteration:
                return
            yield batch
            for schedule in schedules:
                schedule.follow(batch.numel())

    def set_seed(self, seed: int, static_seed: bool = False) -> Any:
        """Do nothing: there is nothing to seed."""

    def reset(self) -> None:
        """Do nothing: there are no episodes."""

    def shutdown(self) -> None:
        """Close nothing."""

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Copy weights into `policy`; with ``None``, and for `policy` itself, do nothing."""
        update_policy(self.policy, policy_or_weights)

    @_left_out
    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    @_left_out
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing."""

    def check_shares(self, number: int) -> None:
        """Refuse a collector without ``shard``, and environments that are no multiple."""
        if type(self).shard is CollectorBase.shard:
            raise no_shard(type(self).__name__, number)
        if self.num_envs is not None:
            share_equally(self.num_envs, number, "num_envs")

    def shard(self, rank: int, world_size: int) -> None:
        """Refuse: one share is not known from another."""
        raise no_shard(type(self).__name__, world_size)

    def position(self) -> dict[str, Any]:
        """Return the whole state."""
        return self.state_dict()

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state as it is: what cannot be shared out anew begins anew."""
        return self.state_dict()

    def use_workers(
        self, workers: int, stages: int = 1, *, at_once: bool = True, timeout: float = TIMEOUT
    ) -> None:
        """Refuse: it steps no environments that processes could step."""
        raise ConfigError(
            f"workers={workers}, stages={stages}: {type(self).__name__} has no environments to "
            "step in processes; leave these out."
        )


if TYPE_CHECKING:
    _FULFILS: type[Collector] = CollectorBase  # as the type checker sees


def no_shard(name: str, number: int) -> ConfigError:
    """The error of a collector that cannot be divided."""
    return ConfigError(
        f"{name} has no shard(rank, world_size), so {number} processes would all collect the same "
        "data. Use a VectorCollector, or give yours that method: it keeps the rank's share of the "
        "environments."
    )


def lost_at_resume(kind: type, resumes: Resumes) -> str | None:
    """What a resumed run lacks because of a collector of some type; ``None`` for nothing."""
    problems: dict[str, str] = {
        "partly": "does not save its running episodes. A resumed run begins new ones",
        "anew": "has no state_dict and load_state_dict. A resumed run iterates over it anew",
    }
    if resumes not in problems:
        return None
    return (
        f"The collector, a {kind.__module__}.{kind.__qualname__}, {problems[resumes]}, and is not "
        "bit for bit the run that was never interrupted. VectorCollector restores all of it."
    )


class NoiseSchedule:
    """An exploration module whose epsilon or deviation falls as its ``step`` counts frames.

    Args:
        module: Such as `EpsilonGreedy`, `AdditiveGaussian`, or one of TorchRL's.
        attribute: ``"eps"`` or ``"sigma"``.

    Attributes:
        metric: What its value is logged as.
        is_driven: Whether something else changes it.
    """

    def __init__(self, module: Any, attribute: str) -> None:
        self.module = module
        self.attribute = attribute
        self.metric = f"train/{'epsilon' if attribute == 'eps' else attribute}"
        self.is_driven = False
        self._left = self.position

    @property
    def position(self) -> tuple[int, float]:
        """The frames counted so far, if the module tells, and the value."""
        frames = getattr(self.module, "frames", 0)
        return int(frames), float(getattr(self.module, self.attribute))

    @position.setter
    def position(self, position: tuple[int, float]) -> None:
        frames, value = position
        now = getattr(self.module, self.attribute)
        if torch.is_tensor(now):
            now.fill_(value)
        else:
            setattr(self.module, self.attribute, value)
        if hasattr(self.module, "frames"):
            self.module.frames = int(frames)
        self._left = self.position

    def follow(self, frames: int) -> None:
        """Count frames, unless something else has moved the value since the last call."""
        self.is_driven |= self.position != self._left
        if not self.is_driven:
            self.module.step(frames)
        self._left = self.position


def schedules_of(policy: Any) -> list[NoiseSchedule]:
    """The schedules of a policy: of a module, or of the modules that a function has at hand."""
    found = {}
    for module in _modules(policy):
        for name in ("eps", "sigma"):
            ends = [getattr(module, f"{name}_{end}", None) for end in ("init", "end")]
            steps = callable(getattr(module, "step", None)) and hasattr(module, name)
            if steps and not any(end is None for end in ends) and ends[0] != ends[1]:
                found[id(module)] = NoiseSchedule(module, name)
    return list(found.values())


def _modules(policy: Any, depth: int = 3) -> Iterator[nn.Module]:
    """The modules of a policy, of what it calls, and of its attributes to this depth."""
    if isinstance(policy, nn.Module):
        yield from policy.modules()
    elif depth:
        for each in _near(policy):
            yield from _modules(each, depth - 1)


def _near(policy: Any) -> list[Any]:
    if isinstance(policy, partial):
        return [policy.func, *policy.args, *policy.keywords.values()]
    if isinstance(policy, (list, tuple)):
        return list(policy)
    if isinstance(policy, dict):
        return list(policy.values())
    if inspect.isfunction(policy):
        used = inspect.getclosurevars(policy)
        return [*used.nonlocals.values(), *used.globals.values()]
    if inspect.ismodule(policy) or inspect.isclass(policy):
        return []
    return [getattr(policy, "__self__", None), *getattr(policy, "__dict__", {}).values()]


Weights = Mapping[str, Any]


def check_can_follow(policy: Any) -> None:
    """Refuse a policy whose weights cannot be handed over: its copy would go stale unnoticed.

    Raises:
        ConfigError: Saying why.
    """
    if policy is None:
        return
    methods = (getattr(policy, name, None) for name in ("state_dict", "load_state_dict"))
    if not all(map(callable, methods)):
        raise ConfigError(
            f"the policy is a {type(policy).__name__} without state_dict and load_state_dict, so a "
            "copy of it could not follow the learner: give a module, or add these methods."
        )
    if is_sharded(policy):
        raise ConfigError(
            "the policy's parameters are shared out among the ranks, which collect together: "
            "there is nothing to overlap, leave out --overlap."
        )


def weights_of(policy: Any, *, copies: bool = False) -> Weights | None:
    """A policy's state, tensors on the CPU; ``None`` for no policy.

    Args:
        policy: The policy.
        copies: Whether the tensors are copies, on the policy's device, that stay as they are when
            the policy is trained.
    """
    if policy is None:
        return None
    return {
        key: (value.detach().clone() if copies else value.detach().cpu())
        if isinstance(value, torch.Tensor)
        else value
        for key, value in policy.state_dict().items()
    }


def update_policy(policy: Any, source: Any) -> None:
    """Copy what a policy is to become; nothing is done for ``None`` and for the policy itself.

    Args:
        policy: The policy.
        source: A module, a TensorDict of parameters or a state dict.

    Raises:
        TypeError: If the policy has no parameters.
    """
    if source is None or source is policy:
        return
    if not isinstance(policy, torch.nn.Module):
        raise TypeError(
            f"The policy is a {type(policy).__name__}, which has no parameters to update."
        )
    if isinstance(source, TensorDictBase):
        TensorDict.from_module(policy).data.update_(source.data)
    elif isinstance(source, torch.nn.Module):
        policy.load_state_dict(source.state_dict())
    else:
        policy.load_state_dict(source)
