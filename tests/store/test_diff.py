from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from hooktrainer.store import compare_trees


def paths(left, right):
    return [difference.path for difference in compare_trees(left, right)]


def tree():
    return {
        "net": OrderedDict(weight=torch.arange(4.0), bias=torch.zeros(2)),
        "optimizer": {0: {"step": 3, "lr": 0.1}, "betas": (0.9, 0.999)},
        "td": TensorDict({"x": torch.ones(3, 2)}, [3]),
        "array": np.arange(3),
        "empty": np.zeros((0, 3)),
        "words": np.arange(3000).astype(str),
        "swapped": np.arange(3, dtype=">f4"),
        "data": NonTensorData(np.arange(3000.0)),
        "keys": {1: "a", "1": "b", (1, 2): "c"},
        "misc": [None, True, math.nan, -0.0, np.float32(1), b"ab", "text"],
    }


def test_equal_trees_have_no_differences():
    shared = torch.ones(2)
    assert paths(tree(), tree()) == []
    assert paths({"a": shared, "b": shared}, {"a": torch.ones(2), "b": torch.ones(2).clone()}) == []
    assert paths({"x": torch.eye(3).T}, {"x": torch.eye(3)}) == []
    assert paths({"x": np.arange(3)[::-1]}, {"x": np.array([2, 1, 0])}) == []
    assert paths(torch.tensor([1j]).conj(), torch.tensor([complex(0, -1)])) == []


def change(path, value):
    def apply(state):
        for key in path[:-1]:
            state = state[key]
        state[path[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (change(["net", "weight"], torch.tensor([0, 1, 2, 4.0])), "net/weight"),
        (change(["net", "bias"], torch.tensor([0.0, -0.0])), "net/bias"),
        (change(["net", "bias"], torch.zeros(2, dtype=torch.float64)), "net/bias"),
        (change(["net", "bias"], torch.zeros(1, 2)), "net/bias"),
        (change(["net", "extra"], torch.zeros(2)), "net/extra"),
        (change(["optimizer", 0, "step"], 4), "optimizer/0/step"),
        (change(["optimizer", 0, "step"], 3.0), "optimizer/0/step"),
        (change(["optimizer", 0, "step"], True), "optimizer/0/step"),
        (change(["optimizer", "betas"], [0.9, 0.999]), "optimizer/betas"),
        (change(["optimizer", "betas"], (0.9, 0.99)), "optimizer/betas/1"),
        (change(["td", "x"], torch.zeros(3, 2)), "td/x"),
        (change(["td"], TensorDict({"x": torch.ones(3, 2)}, [3, 2])), "td/.1/batch_size/1"),
        (change(["array"], np.arange(3, dtype=np.int32)), "array"),
        (change(["array"], np.array([0, 1, 3])), "array"),
        (change(["words", 1500], "zz"), "words"),
        (change(["swapped"], np.array([0, 1, 3], dtype=">f4")), "swapped"),
        (change(["data"], NonTensorData(np.arange(3000.0).clip(7))), "data"),
        (change(["keys", 1], "x"), "keys/1"),
        (change(["keys", "1"], "x"), "keys/1"),
        (change(["keys", (1, 2)], "x"), 'keys/{"$tuple": [[1, 2]]}'),
        (change(["misc", 2], 0.0), "misc/2"),
        (change(["misc", 3], 0.0), "misc/3"),
        (change(["misc", 4], np.float32(2)), "misc/4"),
        (change(["misc", 5], b"ac"), "misc/5"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_each_difference_is_found_and_named(edit, path):
    other = tree()
    edit(other)
    assert paths(tree(), other) == [path]
    assert paths(other, tree()) == [path]


def test_a_difference_shows_both_sides():
    first = next(compare_trees({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.0, 3.0])}))
    assert str(first) == "w: float32[2], 1 of 2 elements differ; element 1 is 2.0 | 3.0"
    assert str(next(compare_trees({"a": 1}, {"b": 1}))) == "a: 1 | absent"
    first = next(compare_trees(np.array([1, 2]), np.array([1, 4])))
    assert str(first) == "the state: int64[2], 1 of 2 elements differ; element 1 is 2 | 4"
    assert str(next(compare_trees(1, 2))) == "the state: 1 | 2"
    assert str(next(compare_trees([1], (1,)))) == "the state: list | tuple"
