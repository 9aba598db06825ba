"""What goes through a checkpoint comes back: every type, every hook, every replay buffer."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict, deque
from pathlib import Path

import numpy as np
import pytest
import torch
from tally import BACKENDS
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers import samplers as torchrl_samplers

from hooktrainer import ReplayBufferTrainer
from hooktrainer.replay import (
    PrioritizedSampler,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
)
from hooktrainer.store import CheckpointManager
from hooktrainer.store.diff import compare_trees

sys.path.insert(0, str(Path(__file__).parents[1] / "hooks"))

from test_conformance import HOOKS, prepare


def through(manager, state, frames):
    manager.save(state, frames=frames)
    return manager.load(str(frames))[1]


# --- types -------------------------------------------------------------------------------------

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.float8_e4m3fn, torch.float8_e5m2),
]


def of_dtype(dtype, *shape):
    count = int(np.prod(shape)) * dtype.itemsize
    raw = torch.arange(count).remainder(2 if dtype is torch.bool else 251).to(torch.uint8)
    return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def every_type():
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    base = torch.arange(12.0)
    return {
        "plain": [None, True, 0, -(2**70), 1.5, -0.0, float("nan"), float("inf"), "text", ""],
        "containers": ((), [], {}, (1, (2,)), {1, 2}, frozenset("a"), deque([1], 3), range(3)),
        "keys": {1: "a", "1": "b", False: 1, None: 2, (1, "x"): 3, "$tuple": 4},
        "others": (1 - 2j, b"\0\xff", bytearray(b"x"), slice(1, None), Path("a/b")),
        "torch": (torch.float8_e5m2, torch.device("cpu"), torch.Size([2, 3])),
        "dtypes": {str(d): [of_dtype(d, *s) for s in [(), (0,), (7,), (3, 5)]] for d in DTYPES},
        "views": [base, base[3:9], base.view(3, 4).T, base[::2]],
        "parameter": torch.nn.Parameter(torch.ones(3).bfloat16()),
        "arrays": [
            np.arange(6).astype(code).reshape(2, 3) for code in ("f2", "f8", ">i4", "u2", "c8", "?")
        ],
        "text": np.array(["a", "bcd"]),
        "times": np.array(["2030-01-01"], "datetime64[D]"),
        "scalars": [np.float32(0.1), np.int64(7), np.bool_(True), np.uint16(65535)],
        "module": module.state_dict(),
        "optimizer": torch.optim.Adam(module.parameters()).state_dict(),
        "ordered": OrderedDict([("b", 1), ("a", torch.ones(2))]),
        "td": TensorDict(
            {"x": torch.ones(2, 3), "nested": {"y": torch.zeros(2, 1)}, "none": {}},
            [2],
            device="cpu",
            names=["time"],
        ),
        "stack": LazyStackedTensorDict.lazy_stack(
            [TensorDict({"x": torch.ones(n)}, []) for n in (1, 2)]
        ),
        "text in a td": TensorDict({"name": NonTensorData("a")}, []),
        "generators": [np.random.default_rng(3).bit_generator.state, torch.get_rng_state()],
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_type_comes_back(backend, tmp_path, tally):
    tree = every_type()
    with CheckpointManager(tmp_path, backend=backend) as manager:
        for frames, (name, value) in enumerate(tree.items()):
            leaves = sum(map(len, value.values())) if name == "dtypes" else len(value)
            with tally("leaves of every type, saved and loaded", backend, leaves):
                assert list(compare_trees(through(manager, value, frames), value)) == [], name


# --- hooks -------------------------------------------------------------------------------------


def made(name, filled):
    """A hook that has seen nothing, or a whole run."""
    hook, trainer = prepare(name)
    if filled:
        hook.register(trainer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.train()
    return hook


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_the_state_of_a_hook_goes_into_an_empty_and_into_a_filled_one(name, tmp_path, tally):
    for backend in BACKENDS:
        with CheckpointManager(tmp_path / backend, backend=backend) as manager:
            for source in (False, True):
                state = made(name, source).state_dict()
                loaded = through(manager, {"hook": state}, int(source))["hook"]
                assert list(compare_trees(loaded, state)) == []
                for target in (False, True):
                    with tally("empty and filled source x target hooks", backend):
                        hook = made(name, target)
                        hook.load_state_dict(loaded)
                        restored = hook.state_dict()
                        assert list(compare_trees(plain(restored), plain(state))) == []


def plain(tree):
    """Without the memory of an empty replay buffer, torchrl's or hooktrainer's."""
    if isinstance(tree, dict):
        empty = 0 in (tree.get("_len"), tree.get("write_count"))
        kept = {k: v for k, v in tree.items() if not (empty and k in ("_storage", "storage"))}
        return {key: plain(value) for key, value in kept.items()}
    return tree


# --- replay buffers ----------------------------------------------------------------------------

STORAGES = {
    "lazy": LazyTensorStorage,
    "memmap": LazyMemmapStorage,
    "list": ListStorage,
}
SAMPLERS = {
    "random": torchrl_samplers.RandomSampler,
    "without replacement": torchrl_samplers.SamplerWithoutReplacement,
}
PAIRS = [
    *((f"torchrl {storage}", sampler) for storage in STORAGES for sampler in SAMPLERS),
    *(
        (f"hooktrainer {storage}", sampler)
        for storage in ("memory", "memmap")
        for sampler in ("random", "without replacement", "prioritized")
    ),
]
SIZE = 20


def make_buffer(storage, sampler, place):
    package, kind = storage.split()
    if package == "torchrl":
        return TensorDictReplayBuffer(
            storage=STORAGES[kind](SIZE), sampler=SAMPLERS[sampler](), batch_size=4
        )
    chosen = {
        "random": RandomSampler,
        "without replacement": SamplerWithoutReplacement,
        "prioritized": lambda: PrioritizedSampler(SIZE, 0.7, 0.5),
    }[sampler]()
    return ReplayBuffer(
        SIZE,
        batch_size=4,
        sampler=chosen,
        scratch_dir=place if kind == "memmap" else None,
    )


def use(hook, batches, start=0.0):
    """Extend, sample and, where there are any, update priorities; return what was sampled."""
    sampled = []
    for number in range(batches):
        x = torch.arange(7.0) + 100 * number + start
        hook.extend(TensorDict({"x": x, "next": {"done": x > 3}}, [7]))
        for _ in range(3):
            sample = hook.sample(None)
            sampled.append(sample["x"])
            if hook.prioritized:
                sample["td_error"] = torch.rand(4) * 10
                hook.update_priority(sample)
    return torch.cat(sampled).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("storage", "sampler"), PAIRS)
def test_a_replay_buffer_goes_on_as_if_it_had_never_been_saved(
    storage, sampler, backend, tmp_path, tally
):
    with CheckpointManager(tmp_path / "c", backend=backend) as manager:
        for filled in (False, True):
            with tally("storage x sampler pairs of replay buffers", backend):
                source, target = (
                    ReplayBufferTrainer(make_buffer(storage, sampler, tmp_path / f"{name}{filled}"))
                    for name in ("source", "target")
                )
                torch.manual_seed(0)
                use(source, 4)  # 28 transitions: it has begun to overwrite
                if filled:
                    use(target, 1, start=0.5)
                random_state = torch.get_rng_state()
                target.load_state_dict(through(manager, source.state_dict(), int(filled)))
                torch.set_rng_state(random_state)
                expected = use(source, 3, start=1000.0)
                torch.set_rng_state(random_state)
                assert use(target, 3, start=1000.0) == expected
