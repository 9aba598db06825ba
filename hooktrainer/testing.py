"""Helpers for testing hooks and collectors: a fake collector, a scripted loss, checks."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Final

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from .base.tensordicts import count_valid, mask_of
from .collect.adapt import adapt
from .collect.collector import Collector
from .collect.messages import dump, load
from .errors import CollectorError, ConfigError, HookError
from .loop.hook import TrainerHookBase
from .loop.hook_points import HOOK_POINTS
from .loop.stateful import has_state
from .store import compare_trees, flatten, rng_state, set_rng_state, unflatten
from .store.rng import seed_all
from .trainer import Trainer

_FLAGS = ("done", "terminated", "truncated")
_MUTABLE = (list, dict, set, bytearray, deque, torch.Tensor, np.ndarray)


class FakeCollector:
    """A collector of random transitions in TorchRL's layout.

    Batches are ``[num_envs, time]`` with ``observation`` (float32, ``[4]``), ``action`` (int64),
    ``done``, ``terminated``, ``truncated`` and, under ``next``, those and ``reward``. An episode
    has five steps.

    Args:
        num_batches: Number of batches; ``None`` for no end.
        num_envs: Environments.
        time: Steps per environment in a batch.
        seed: Seed of the data.

    Attributes:
        closed: Number of calls of `shutdown`.
    """

    def __init__(
        self, num_batches: int | None = None, num_envs: int = 2, time: int = 5, seed: int = 0
    ) -> None:
        self.num_batches = num_batches
        self.num_envs = num_envs
        self.time = time
        self.closed = 0
        self.yielded = 0
        self._observation: torch.Tensor | None = None
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield the remaining batches."""
        while self.num_batches is None or self.yielded < self.num_batches:
            self.yielded += 1
            yield self._batch()

    def _batch(self) -> TensorDictBase:
        shape = (self.num_envs, self.time)
        steps = torch.arange(self.time) + (self.yielded - 1) * self.time
        terminated = ((steps + 1) % 5 == 0).expand(shape).unsqueeze(-1)
        never = torch.zeros_like(terminated)
        after = torch.randn(*shape, 4, generator=self._generator)
        first = torch.randn(*shape, 4, generator=self._generator)  # of the next episode, if any
        following = torch.where(terminated, first, after)
        if self._observation is None:
            self._observation = torch.randn(self.num_envs, 4, generator=self._generator)
        observation = torch.cat([self._observation.unsqueeze(1), following[:, :-1]], 1)
        self._observation = following[:, -1].clone()
        return TensorDict(
            {
                "observation": observation,
                "action": torch.randint(2, shape, generator=self._generator),
                **dict.fromkeys(_FLAGS, never),
                "next": {
                    "observation": after,
                    "reward": torch.randn(*shape, 1, generator=self._generator),
                    **dict.fromkeys(_FLAGS, terminated),
                    "truncated": never,
                },
            },
            batch_size=shape,
        ).clone()  # each flag in memory of its own

    def set_seed(self, seed: int) -> None:
        """Seed the data."""
        self._generator.manual_seed(seed)
        self._observation = None

    def update_policy_weights_(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, since there is no policy."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position, the observation and the generator's state."""
        return {
            "yielded": self.yielded,
            "observation": self._observation,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.yielded = state_dict["yielded"]
        self._observation = state_dict["observation"]
        self._generator.set_state(state_dict["generator"])

    def shutdown(self) -> None:
        """Count the call."""
        self.closed += 1


class ScriptedLoss(torch.nn.Module):
    """A loss module with predefined values and one parameter, whose gradient is 1.

    Args:
        values: Values of ``key``, one per call; the last one is repeated.
        key: Key of the loss.
    """

    def __init__(self, values: Sequence[float] = (1.0,), key: str = "loss") -> None:
        super().__init__()
        self.values = list(values)
        self.key = key
        self.calls = 0
        self.parameter = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``{key: the next value}``."""
        value = self.values[min(self.calls, len(self.values) - 1)]
        self.calls += 1
        return TensorDict({self.key: self.parameter - self.parameter.detach() + value}, [])


class CallRecorder(TrainerHookBase):
    """A hook at all ten points that records its calls.

    Attributes:
        calls: Name of the hook point of each call.
        arguments: Arguments of each call.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.arguments: list[tuple[Any, ...]] = []

    def register(self, trainer: Trainer, name: str = "call_recorder") -> None:
        """Register at all ten points."""
        for point in HOOK_POINTS:
            trainer.register_op(point, self._record, point=str(point))
        trainer.register_module(name, self)

    def _record(self, *arguments: Any, point: str) -> None:
        self.calls.append(point)
        self.arguments.append(arguments)


def tiny_trainer(**overrides: Any) -> Trainer:
    """Return a small trainer: `FakeCollector`, `ScriptedLoss`, SGD, 2 steps a batch, 5 batches.

    Args:
        **overrides: Arguments of `Trainer` to replace.
    """
    loss = overrides.pop("loss_module", None) or ScriptedLoss()
    arguments: dict[str, Any] = {
        "collector": FakeCollector(),
        "total_frames": 50,
        "frame_skip": 1,
        "optim_steps_per_batch": 2,
        "loss_module": loss,
        "progress_bar": False,
    }
    if "optimizer" not in overrides:
        arguments["optimizer"] = torch.optim.SGD(loss.parameters(), lr=0.1)
    return Trainer(**arguments | overrides)


def check_hook(hook: TrainerHookBase, make: Callable[[], Trainer] = tiny_trainer) -> None:
    """Check that a hook fulfils the contract.

    It registers the hook, trains a few batches, and checks that the state survives a save and load,
    that the hook pickles, and that it can be closed twice.

    Args:
        hook: A new hook.
        make: Makes the trainer, if the hook needs more than `tiny_trainer`.

    Raises:
        HookError: If it does not; names the defect.
    """
    kind = type(hook).__name__
    for owner in type(hook).__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, _MUTABLE) and not name.startswith("__"):
                raise HookError(
                    f"{owner.__name__}.{name} is a mutable class attribute, shared by every "
                    "trainer in the process; make it in __init__."
                )
    fresh = _pickled(hook)
    trainer = make()
    before = len(list(trainer.registry.entries()))
    try:
        hook.register(trainer)
    except TypeError as error:
        raise HookError(f"{kind}.register(trainer) failed; give name a default: {error}") from error
    if len(list(trainer.registry.entries())) == before and getattr(hook, "at", None) != ():
        raise HookError(f"{kind}.register registers no op; call trainer.register_op in it.")
    if not any(module is hook for module in trainer.registry.modules.values()):
        raise HookError(f"{kind}.register must call trainer.register_module(name, self).")
    if not has_state(hook):
        raise HookError(
            f"{kind} needs state_dict and load_state_dict; derive from TrainerHookBase."
        )
    trainer.train()

    skeleton, tensors = flatten({kind: hook.state_dict()})
    for other in (fresh, _pickled(hook)):
        other.load_state_dict(unflatten(skeleton, tensors)[kind])
        for difference in compare_trees(hook.state_dict(), other.state_dict()):
            raise HookError(
                f"{kind}.load_state_dict does not restore what state_dict returned: saved and "
                f"restored differ in {difference}."
            )
    hook.close()


def _pickled(hook: Any) -> Any:
    """Copy ``hook`` through pickle, without its trainer."""
    try:
        alone = copy.copy(hook)
        vars(alone).pop("trainer", None)
        return pickle.loads(pickle.dumps(alone))
    except Exception as error:
        raise HookError(
            f"{type(hook).__name__} does not pickle, so a trainer with it cannot be sent to "
            f"another process: {error}. Leave out what cannot be sent in __getstate__."
        ) from error


# -- `check_collector`: whether a collector keeps the contract of `hooktrainer.collect.Collector`.


Make = Callable[[], Any]


@contextmanager
def _fresh(make: Make) -> Iterator[Collector]:
    """A new collector, and random generators as for every other; closed in the end."""
    seed_all(0)
    collector = adapt(make())
    try:
        seed_all(0)
        yield collector
    finally:
        collector.shutdown()


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise CollectorError(f"the collector breaks its contract: {problem}")


def check_collector(make: Callable[[], Any], batches: int = 4) -> None:
    """Check that a collector keeps the contract of `hooktrainer.collect.Collector`.

    It looks at the layout of batches, the observations in which episodes end, what is copied to
    another process, seeding, shares, closing, and exact resumes if ``resumes`` is ``"exactly"``.

    Args:
        make: Makes a fresh collector, or whatever `adapt` takes, alike each time; it is called a
            dozen times. The global random generators are seeded before.
        batches: How many batches are looked at. At least two episodes should end in them, and more
            of an environment whose observations seldom change.

    Raises:
        CollectorError: Saying what is wrong.
    """
    before = rng_state()
    try:
        for look in (_layout, _episodes, _seeding, _copy, _resume, _shares, _closing):
            look(make, batches)
    finally:
        set_rng_state(before)


def _layout(make: Make, batches: int) -> None:
    with _fresh(make) as collector:
        collector.start()
        if collector.policy is not None:
            collector.update_policy_weights_()
        frames, kept = collector.frames, []
        for batch in chain.from_iterable(_take(collector, 1) for _ in range(batches)):
            _require(is_tensor_collection(batch), f"collect() returned a {type(batch)}")
            number = count_valid(batch)
            frames += number
            for name, stated, found in (
                ("frames_per_batch", collector.frames_per_batch, number),
                ("num_envs", collector.num_envs if batch.ndim > 1 else None, len(batch)),
                ("frames", collector.frames, frames),
            ):
                _require(stated in (None, found), f"{name} is {stated}, but {found} were collected")
            for key, value in batch.items(True, True):
                problem = f"{key!r} is on {value.device}, and device is {collector.device}"
                _require(collector.device in (None, value.device), problem)
            if "next" in batch:
                _transitions(collector, batch)
            # Not clone(), which makes 0.0 of -0.0 where a TensorDict has a device.
            kept.append((batch, pickle.loads(pickle.dumps(batch))))
        _require(bool(kept), "it has no batch")
        problem = "a batch changes when others are collected"
        _require(_alike(*map(list, zip(*kept, strict=True))), problem)


def _transitions(collector: Collector, batch: TensorDictBase) -> None:
    shape, following = batch.batch_size, batch["next"]
    for key in (*_FLAGS, "reward"):
        if (value := following.get(key, None)) is None:
            _require(key == "done" or key in batch, f"('next', {key!r}) is missing")
            continue
        wanted = torch.float32 if key == "reward" else torch.bool
        _require(
            value.dtype is wanted and value.shape == (*shape, 1),
            f"('next', {key!r}) is {value.dtype} {list(value.shape)}, not {wanted} {[*shape, 1]}",
        )
    if "done" in following:
        ends = following["terminated"] | following["truncated"]
        _require(torch.equal(ends, following["done"]), "done is not terminated or truncated")
    for key in _observations(batch):
        one, other = batch[key], following[key]
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        _require(same, f"{key!r} has another type or shape in 'next'")


_CHANCE: Final = 1e-3
"""The probability above which equal observations are no evidence."""


def _episodes(make: Make, batches: int) -> None:
    with _fresh(make) as collector:
        taken = _take(collector, batches)
    if any("next" not in b or b.ndim < 2 or mask_of(b) is not None for b in taken):
        return
    whole: TensorDictBase = torch.cat(taken, -1)
    ends = (whole["next", "terminated"] | whole["next", "truncated"]).squeeze(-1)[..., :-1]
    for key in _observations(whole):
        after, first = whole["next", key][:, :-1], whole[key][:, 1:]
        same = (after == first).reshape(*ends.shape, -1).all(-1)
        follows = f"('next', {key!r}) is not the {key!r} that the following transition begins with"
        _require(bool(same[~ends].all()), follows)
        # A final observation may equal a first one by chance, such as the outcome of a shot.
        stays = (first[:, 1:] == first[:, :-1]).reshape(*ends[:, 1:].shape, -1).all(-1)
        number = int(ends.sum())
        if number > 1 and stays.double().mean() ** number < _CHANCE:
            final = (
                f"where an episode ends, ('next', {key!r}) is the first of the next episode, not "
                "the true final one"
            )
            _require(not bool(same[ends].all()), final)


def _seeding(make: Make, _: int) -> None:
    first = []
    for _ in range(2):
        with _fresh(make) as collector:
            try:
                collector.set_seed(7)
            except ConfigError:
                return
            seed_all(0)
            first.append(_take(collector, 2))
    _require(_alike(first[0], first[1]), "set_seed(7) does not give the same batches twice")


def _copy(make: Make, _: int) -> None:
    with _fresh(make) as collector:
        try:
            message = dump(collector)
        except Exception:
            return
        own = _take(collector, 2)
    with _fresh(lambda: load(message)) as copy:
        _require(_alike(own, _take(copy, 2)), "a pickled copy collects other batches")


def _resume(make: Make, _: int) -> None:
    with _fresh(make) as collector:
        if collector.resumes != "exactly":
            return
        whole = _take(collector, 4)
    with _fresh(make) as collector:
        _take(collector, 2)
        saved = unflatten(*flatten({"state": collector.state_dict(), "rng": rng_state()}))
        following = _take(collector, 2)
        frames = collector.frames
    _require(_alike(following, whole[2:]), "state_dict() changes what follows")
    with _fresh(make) as collector:
        collector.start()
        collector.load_state_dict(saved["state"])
        set_rng_state(saved["rng"])
        problem = "it resumes 'exactly', but continues with other batches"
        _require(_alike(_take(collector, 2), following), problem)
        counts = collector.total_frames < 0 or collector.frames == frames
        _require(counts, "load_state_dict does not restore frames, which total_frames is for")


def _shares(make: Make, _: int) -> None:
    with _fresh(make) as collector:
        try:
            collector.check_shares(2)
        except ConfigError:
            with suppress(ConfigError):
                collector.shard(0, 2)
                _require(False, "shard does what check_shares refuses")
            return
        (whole,) = _take(collector, 1)
        num_envs, join = collector.num_envs, collector.join
    batches: list[TensorDictBase] = []
    states: list[dict[str, Any]] = []
    for rank in range(2):
        with _fresh(make) as share:
            share.shard(rank, 2)
            stated, half = share.num_envs, num_envs and num_envs // 2
            _require(stated == half, f"num_envs is {stated} in one of two shares of {num_envs}")
            batches += _take(share, 1)
            states.append(share.state_dict())
    halves = all(2 * batch.numel() == whole.numel() for batch in batches)
    _require(halves, "a batch of a share is not a share of one")
    together = join(batches)
    for key in _observations(whole) or list(whole.keys(True, True)):
        same = torch.equal(_beginning(together, key), _beginning(whole, key))
        _require(same, f"{key!r} of the shares together is not that of the whole")
    with _fresh(make) as collector:
        collector.load_state_dict(collector.reshard(states))
        _take(collector, 1)


def _closing(make: Make, _: int) -> None:
    with _fresh(make) as collector:
        collector.shutdown()
    with _fresh(make) as collector:
        _take(collector, 1)
        collector.shutdown()
        try:
            _take(collector, 1)
        except RuntimeError:
            return
        _require(False, "collect() after shutdown() raises no RuntimeError")


def _take(collector: Collector, number: int) -> list[Any]:
    batches: list[Any] = []
    with suppress(StopIteration):
        while len(batches) < number:
            batches.append(collector.collect())
    return batches


def _observations(batch: TensorDictBase) -> list[Any]:
    following = batch.get("next", None)
    if following is None:
        return []
    both = set(batch.keys(True, True)) & set(following.keys(True, True))
    return sorted(both - {*_FLAGS, "reward"}, key=str)


def _beginning(batch: TensorDictBase, key: Any) -> torch.Tensor:
    """The first step of each row; all of a batch that has no time."""
    value: torch.Tensor = batch[key]
    return value[:, 0] if batch.ndim > 1 else value


def _alike(batches: list[Any], others: list[Any]) -> bool:
    trees = ({"batches": [one.to_dict() for one in each]} for each in (batches, others))
    return not any(compare_trees(*trees))
