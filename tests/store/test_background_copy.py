"""A checkpoint holds the state of the call, whatever training changes afterwards."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from fault_injection import BACKENDS, FULL
from tensordict import MemoryMappedTensor, TensorDict, lazy_stack

from hooktrainer.store import CheckpointManager, compare_trees, flatten, unflatten

ROUNDS = 20 if FULL else 3
LARGE = (130 << 20) // 4 if FULL else 3 << 18
"""Floats in the largest tensor. Some libraries copy tensors below 128 MiB only."""


def make_state(tmp_path):
    """Everything in it can be changed in place."""
    torch.manual_seed(0)
    return {
        "large": torch.rand(LARGE),
        "small": [torch.rand(7) for _ in range(100)],
        "parameter": torch.nn.Parameter(torch.rand(300, 300)),
        "half": torch.rand(1001).bfloat16(),
        "transposed": torch.rand(40, 30).T,
        "slice": torch.rand(100, 100)[10:20, ::3],
        "mapped": MemoryMappedTensor.from_tensor(torch.rand(5000), filename=tmp_path / "mapped"),
        "array": np.random.default_rng(0).random((50, 50)),
        "columns": np.asfortranarray(np.random.default_rng(1).random((5, 7))),
        "td": TensorDict({"x": torch.rand(4, 2), "nested": {"y": torch.rand(4)}}, [4]),
        "stack": lazy_stack([TensorDict({"x": torch.rand(2)}, []) for _ in range(3)]),
        "bytes": bytearray(b"bytes" * 100),
        "dict": {"count": 1, "list": [1, 2, 3], "set": {1, 2}},
    }


def mutate(state):
    """Change every element there is, as training would: in place."""
    for value in state.values():
        if isinstance(value, torch.Tensor | TensorDict):
            value.data.add_(1)
        elif isinstance(value, np.ndarray):
            value += 1
        elif isinstance(value, bytearray):
            value[:] = bytes((byte + 1) % 256 for byte in value)
        elif isinstance(value, list):
            for tensor in value:
                tensor.add_(1)
        elif isinstance(value, dict):
            value["count"] += 1
            value["list"].append(4)
            value["set"].add(value["count"])
        else:
            value.apply_(lambda tensor: tensor.add_(1))


def frozen(state):
    """A copy that shares nothing with the state."""
    skeleton, tensors = flatten(state)
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    return unflatten(json.loads(json.dumps(skeleton)), copies)


@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_is_changed_right_after_the_save_returned(backend, tmp_path):
    state = make_state(tmp_path)
    with CheckpointManager(tmp_path / "c", backend=backend) as manager:
        for frames in range(ROUNDS):
            expected = frozen(state)
            manager.save(state, frames=frames)
            mutate(state)
            changed = {
                difference.path.split("/")[0] for difference in compare_trees(expected, state)
            }
            assert changed == set(state)
            assert list(compare_trees(manager.load()[1], expected)) == []


def test_memory_for_the_copy_is_used_again(tmp_path):
    state = {"x": torch.rand(1000), "y": torch.rand(3, 3)}
    with CheckpointManager(tmp_path / "c") as manager:
        copies = []
        for frames in (1, 2):
            manager.save(state, frames=frames)
            manager.wait()
            copies.append([tensor.data_ptr() for tensor in manager._copies.values()])
        assert copies[0] == copies[1]
