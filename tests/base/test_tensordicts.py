"""What is done with TensorDicts in fewer calls is what tensordict does."""

from __future__ import annotations

import torch
from tensordict import TensorDict, lazy_stack

from hooktrainer.base.tensordicts import entries_of


def _nested() -> TensorDict:
    deep = TensorDict({"c": torch.ones(2)}, [2])
    following = TensorDict({"b": torch.ones(2), "deep": deep}, [2])
    return TensorDict({"a": torch.zeros(2), "next": following}, [2])


def test_some_entries_are_those_that_get_gives():
    batch = _nested()
    keys = ["a", "missing", ("next", "b"), ("next", "deep", "c"), ("next", "z")]
    keys += [("gone", "b"), ("next", ("deep", "c"))]
    for each in (batch, lazy_stack([batch, batch + 1])):
        found = entries_of(each, keys)
        expected = {key: each.get(key, None) for key in keys}
        assert list(found) == [key for key in keys if expected[key] is not None]
        assert len(found) == 4
        assert all(torch.equal(found[key], expected[key]) for key in found)
    assert entries_of(batch, ["a"])["a"] is batch["a"]
