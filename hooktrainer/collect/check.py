"""`check_collector`: whether a collector keeps the contract of `hooktrainer.collect.Collector`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import torch
from tensordict import TensorDictBase, is_tensor_collection

from ..base.tensordicts import mask_of
from ..errors import CollectorError, ConfigError
from ..store.rng import rng_state, seed_all, set_rng_state
from ..store.tree import flatten, unflatten
from .adapt import adapt
from .collector import Collector
from .overlap.server import dump

_FLAGS = ("done", "terminated", "truncated")


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
    another process, seeding, shares, closing, and, if the collector says that it resumes exactly,
    whether it does.

    Args:
        make: Makes a fresh collector, or whatever `adapt` takes, alike each time; it is called a
            dozen times. The global random generators are seeded before.
        batches: How many batches are looked at. At least two episodes should end in them.

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
            frames += batch.numel()
            for name, said, found in (
                ("frames_per_batch", collector.frames_per_batch, batch.numel()),
                ("num_envs", collector.num_envs if batch.ndim > 1 else None, len(batch)),
                ("frames", collector.frames, frames),
            ):
                _require(said in (None, found), f"{name} is {said}, but {found} were collected")
            for key, value in batch.items(True, True):
                problem = f"{key!r} is on {value.device}, and device is {collector.device}"
                _require(collector.device in (None, value.device), problem)
            if "next" in batch:
                _transitions(collector, batch)
            kept.append((batch, batch.clone()))
        _require(bool(kept), "it has no batch")
        for batch, copy in kept:
            _require(_same(batch, copy), "a batch changes when others are collected")


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
        moves = bool((first[:, 1:] != first[:, :-1]).any())
        if moves and int(ends.sum()) > 1:
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
    with _fresh(lambda: pickle.loads(message)) as copy:
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
        problem = "it resumes 'exactly', but goes on with other batches"
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
        num_envs = collector.num_envs
    batches: list[TensorDictBase] = []
    states: list[dict[str, Any]] = []
    for rank in range(2):
        with _fresh(make) as share:
            share.shard(rank, 2)
            said, half = share.num_envs, num_envs and num_envs // 2
            _require(said == half, f"num_envs is {said} in one of two shares of {num_envs}")
            batches += _take(share, 1)
            states.append(share.state_dict())
    halves = all(2 * batch.numel() == whole.numel() for batch in batches)
    _require(halves, "a batch of a share is not a share of one")
    for key in _observations(whole) or list(whole.keys(True, True)):
        begun = torch.cat([_beginning(batch, key) for batch in batches])
        same = torch.equal(begun, _beginning(whole, key))
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
    return len(batches) == len(others) and all(map(_same, batches, others))


def _same(one: Any, other: Any) -> bool:
    keys = set(one.keys(True, True))
    return keys == set(other.keys(True, True)) and all(
        one[key].dtype == other[key].dtype
        and torch.equal(one[key].nan_to_num(0.5), other[key].nan_to_num(0.5))
        for key in keys
    )
