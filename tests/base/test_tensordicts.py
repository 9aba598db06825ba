"""What is done with TensorDicts in fewer calls is what tensordict does."""

from __future__ import annotations

import torch
from tensordict import TensorDict, lazy_stack

from hooktrainer.base.tensordicts import entries_of, tensordict_of


def test_it_is_what_the_constructor_makes():
    tensors = {key: torch.randn(3, size) for size, key in enumerate("abcd", start=1)}
    device = torch.device("cpu")
    own = TensorDict({"d": tensors["d"]}, batch_size=[3])
    made = tensordict_of(
        {"a": tensors["a"], ("next", "b"): tensors["b"], ("next", "deep", "c"): tensors["c"]}
        | {"own": own},
        torch.Size([3]),
        device,
    )
    nested = {"b": tensors["b"], "deep": {"c": tensors["c"]}}
    expected = TensorDict({"a": tensors["a"], "next": nested, "own": own}, [3], device=device)
    assert (made == expected).all()
    assert set(made.keys(True)) == set(expected.keys(True))
    for key in ((), "next", ("next", "deep")):
        part = made[key] if key else made
        assert isinstance(part, TensorDict)
        assert (part.batch_size, part.device) == ((3,), device)
    # It can be used as any other: cut, changed, moved.
    assert made[1:].batch_size == (2,)
    made["next", "deep", "c"] = torch.zeros(3, 1)
    assert not made.to(torch.float64).get(("next", "deep", "c")).any()


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
