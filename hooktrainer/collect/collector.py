"""`Collector`: the contract between a source of batches and everything that uses it.

`hooktrainer.testing.check_collector` checks it. Objects that do not derive from `Collector`, such
as a list or another library's collector, are adapted by `hooktrainer.collect.adapt`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from ..base.checks import share_equally
from ..base.endings import TIMEOUT
from ..base.tensordicts import count_valid, is_sharded
from ..errors import ConfigError
from ..loop.timing import Timing

Resumes = Literal["exactly", "partly", "restarts"]
"""How a collector is restored in a resumed run; see `Collector.resumes`."""
OVERLAP = "overlap"
"""Key of the state by which that of an `OverlappedCollector` is known."""


def _optional(method: Any) -> Any:
    """Mark a method that counts as missing unless a subclass writes it; see `has_state`."""
    method.__isabstractmethod__ = True
    return method


class Collector:
    """A source of batches: derive from it, write `collect`, and override other methods as needed.

    Without more, a collector can be trained on, timed, and made to collect ahead. Add
    ``state_dict`` and ``load_state_dict``, and it is resumed: exactly, unless you set
    ``resumes = "partly"``. Add ``shard``, and it is divided among ranks and the processes of a Ray
    cluster. Set the attributes that you know. If you set ``total_frames``, add to ``frames`` in
    ``collect``.

    **Batches.** A batch is a TensorDict of any batch size, usually ``[num_envs, time]``, in
    TorchRL's layout: per transition the observation and the action at the root, and under
    ``"next"`` the observation that the action led to, ``"reward"`` (float32 ``[..., 1]``),
    ``"done"``, ``"terminated"`` and ``"truncated"`` (bool ``[..., 1]``). Where an episode ends, the
    observation in ``"next"`` is the **true final one**, not the first of the next episode. Padding
    is marked in ``("collector", "mask")``. The collector does not write into a batch again.

    **Counts** are of transitions without padding; each is ``frame_skip`` frames of the environment.

    **Order of calls.** `set_seed`, `load_state_dict`, `shard` and `use_workers` may come before
    `start`, `start` before the first `collect`; `shutdown` is last. Before its first batch a
    collector can be pickled or copied, if it is to work in another process or thread.

    Attributes:
        policy: The object whose weights the learner trains. A copy of it follows the learner by
            ``state_dict`` and ``load_state_dict``.
        num_envs: Number of environments: the first dimension of a batch; ``None`` if unknown.
        frames_per_batch: Transitions of a batch; ``None`` if unknown before.
        total_frames: Transitions after which iteration ends, those of earlier runs included;
            -1 for no end.
        init_random_frames: Number of transitions collected with random actions first; nothing is
            trained on them.
        frame_skip: How often the environment repeats each action; ``None``, unknown, counts as 1.
        device: Where batches are; ``None`` if unknown.
        seed: The seed it collects with, if any.
        frames: Transitions collected so far, those of earlier runs included.
        unit: What a batch counts, in the plural; frames of an environment by default.
        epoch: Passes over its data so far, as a fraction; ``None`` if it has no data to pass over.
        ended: Why there are no more batches, once there are none; ``None`` before.
        world_log: Numbers that a simulator reports of the last batch, by name.
        sets_rng: Whether collecting sets the global random generators to earlier states.
        processes: Number of processes that each collect a share of a batch; 0 for none but this.
        replay_buffer: The replay buffer into which it has written every batch, if any.
        resumes: ``"exactly"``: a resumed run is bit for bit the uninterrupted one. ``"partly"``:
            its saved state is incomplete. ``"restarts"``: it has no state, and starts from its
            beginning.
        steps_exploration: Whether iterating steps the policy's exploration schedule; a trainer does
            it itself.

    Examples:
        >>> from tensordict import TensorDict
        >>> class Noise(Collector):
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
    unit: str = "frames"
    epoch: float | None = None
    ended: str | None = None
    world_log: Mapping[str, torch.Tensor] = MappingProxyType({})
    sets_rng: bool = False
    processes: int = 0
    replay_buffer: Any = None
    resumes: Resumes = "restarts"
    steps_exploration: bool = True
    is_saved = False  # as a hook: checkpoints hold it, or its wrapper, as the collector
    _closed = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "state_dict" in vars(cls) and "resumes" not in vars(cls):
            cls.resumes = "exactly"

    @property
    def unsaved(self) -> str | None:
        """A warning about what a resumed run lacks; ``None`` for nothing."""
        return lost_at_resume(type(self), self.resumes)

    @cached_property
    def timing(self) -> Timing:
        """Receives the times of its work, as ``collect/<part>`` or ``worker/<part>``.

        The trainer sets its own before `start`.
        """
        return Timing()

    # -- collecting ------------------------------------------------------------------------------

    def register(self, trainer: Any) -> None:
        """Register ops of its own, as hooks do."""

    def start(self) -> None:
        """Start processes and anything else the first batch would wait for."""

    def collect(self) -> TensorDictBase:
        """Collect the next batch, regardless of `total_frames`.

        Raises:
            StopIteration: If there is none, now and ever.
            RuntimeError: If the collector is shut down.
        """
        raise NotImplementedError(f"{type(self).__name__} has no collect()")

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield batches until `total_frames` are collected, or there are no more.

        With `steps_exploration`, exploration schedules of the policy are stepped between batches.
        """
        schedules = schedules_of(self.policy) if self.steps_exploration else []
        while self.total_frames < 0 or self.frames < self.total_frames:
            try:
                batch = self.collect()
            except StopIteration:
                return
            yield batch
            for schedule in schedules:
                schedule.follow(count_valid(batch))

    def set_seed(self, seed: int, static_seed: bool = False) -> Any:
        """Start over with this seed: the same seed gives the same batches."""

    def reset(self) -> None:
        """Abandon the running episodes: the next batch begins with new ones."""

    def shutdown(self) -> None:
        """Close everything; safe to call again, and in the middle of a batch."""
        if not self._closed:
            self._closed = True
            self._close()

    def _close(self) -> None:
        """Close everything, once."""

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("The collector is shut down; build a new one.")

    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Update the policy from a module, a TensorDict of parameters or a state dict.

        ``None``: `policy` itself was trained, and copies of it are to follow.
        """
        policy, source = self.policy, policy_or_weights
        if source is None or source is policy:
            return
        if not isinstance(policy, nn.Module):
            raise TypeError(
                f"The policy is a {type(policy).__name__}, which has no parameters to update."
            )
        if isinstance(source, TensorDictBase):
            TensorDict.from_module(policy).data.update_(source.data)
        else:
            policy.load_state_dict(source.state_dict() if isinstance(source, nn.Module) else source)

    # -- state -----------------------------------------------------------------------------------

    @_optional
    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain values, arrays and tensors.

        Not the policy's parameters, nor the global random generators.
        """
        return {}

    @_optional
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, here or in another process.

        Raises:
            StateMismatchError: If it is that of another collector.
        """

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List why a saved state does not fit; by default, that it was collected ahead."""
        if OVERLAP not in saved:
            return []
        return [
            "the saved collector had collected ahead: give --overlap as before, or --overlap 0 "
            "and --allow-change overlap, which begins with the batches that it had in hand"
        ]

    # -- shared among processes ------------------------------------------------------------------

    def check_shares(self, number: int) -> None:
        """Refuse to be shared among ``number`` processes if that cannot be done; changes nothing.

        Raises:
            ConfigError: If there is no ``shard``, or `num_envs` is no multiple.
        """
        if type(self).shard is Collector.shard:
            raise no_shard(type(self).__name__, number)
        if self.num_envs is not None:
            share_equally(self.num_envs, number, "num_envs")

    def shard(self, rank: int, world_size: int) -> None:
        """Keep one of ``world_size`` equal shares; before the first batch.

        The shares together are the whole: each environment is in one of them, and plays the
        episodes it would play in the whole. Batches, `num_envs`, `frames_per_batch` and
        `total_frames` become that much smaller.

        Raises:
            ConfigError: As `check_shares` does.
        """
        raise no_shard(type(self).__name__, world_size)

    def join(self, shares: Sequence[TensorDictBase]) -> TensorDictBase:
        """The whole batch of the shares' batches, in their order."""
        return torch.cat(list(shares))

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to load when the environments are divided otherwise than before.

        ``states`` are those of every former share, in order. Nothing is collected again that was
        collected before. By default it is the present one, so that the collector starts over.
        """
        return self.state_dict()

    def use_workers(self, workers: int, stages: int = 1, *, timeout: float = TIMEOUT) -> None:
        """Step the environments in processes, which start with `start` or the first batch.

        The environments take turns with the policy in ``stages`` parts. A process that does not
        answer for ``timeout`` seconds ends the run.

        Raises:
            ConfigError: If that cannot be done.
        """
        raise ConfigError(
            f"workers={workers}, stages={stages}: {type(self).__name__} has no environments to "
            "step in processes; leave these out."
        )


def no_shard(name: str, number: int) -> ConfigError:
    """The error of a collector that cannot be divided."""
    return ConfigError(
        f"{name} has no shard(rank, world_size), so {number} processes would all collect the same "
        "data: derive it from Collector and add that method, or use a VectorCollector."
    )


def lost_at_resume(kind: type, resumes: Resumes) -> str | None:
    """The warning about a collector that is not resumed exactly; ``None`` if it is."""
    if resumes == "exactly":
        return None
    problem = "has no state_dict and load_state_dict. A resumed run restarts it"
    if resumes == "partly":
        problem = "does not save its running episodes. A resumed run begins new ones"
    return (
        f"The collector, a {kind.__module__}.{kind.__qualname__}, {problem}, and is not bit for "
        "bit the run that was never interrupted. VectorCollector restores all of it."
    )


class NoiseSchedule:
    """An exploration module whose epsilon or deviation falls as its ``step`` counts frames."""

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
        return [policy.func, policy.args, policy.keywords]
    if isinstance(policy, (list, tuple, dict)):
        return list(policy.values() if isinstance(policy, dict) else policy)
    if inspect.isfunction(policy):
        used = inspect.getclosurevars(policy)
        return [*used.nonlocals.values(), *used.globals.values()]
    if inspect.ismodule(policy) or inspect.isclass(policy):
        return []
    return [getattr(policy, "__self__", None), *getattr(policy, "__dict__", {}).values()]


Weights = Mapping[str, Any]


def check_can_follow(policy: Any) -> None:
    """Refuse a policy whose weights cannot be handed over: its copy would go stale unnoticed."""
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
    """A policy's state, tensors on the CPU; ``None`` for no policy."""
    if policy is None:
        return None
    return {
        key: (value.detach().clone() if copies else value.detach().cpu())
        if isinstance(value, torch.Tensor)
        else value
        for key, value in policy.state_dict().items()
    }
