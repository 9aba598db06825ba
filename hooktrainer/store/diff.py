"""Comparing two state trees leaf by leaf, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..base.untrusted import one_line
from .tree import TensorSpec, byte_view, flatten, parts_of

_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One place where two trees differ."""

    path: str
    """Where, such as ``modules/policy/0.weight``."""
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.left} | {self.right}"


def compare_trees(left: Any, right: Any) -> Iterator[Difference]:
    """Yield where two state trees differ, in the order of the left one.

    Types count, and floats are compared by their bits: NaN equals NaN, and 0.0 differs from -0.0.
    Memory shared by tensors does not count, nor do strides.

    Raises:
        CheckpointError: If a tree holds what cannot be saved; see `flatten`.
    """
    flatten([left, right])
    yield from _compare(left, right, "")


def _compare(left: Any, right: Any, path: str) -> Iterator[Difference]:
    (kind, ours), (other, theirs) = _inside(left), _inside(right)
    if kind == other and ours is not None and theirs is not None:
        for key in {**ours, **theirs}:
            inner = f"{path}/{key}" if path else str(key)
            yield from _compare(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), inner)
        return
    (text, tensor), (other_text, other_tensor) = _leaf(left, kind), _leaf(right, other)
    where = path or "the state"
    if (kind, text) != (other, other_text):
        yield Difference(where, one_line(text, 80), one_line(other_text, 80))
    elif tensor is not None and other_tensor is not None:
        raw = [byte_view(x).reshape(x.numel(), x.itemsize) for x in (tensor, other_tensor)]
        if len(unequal := raw[0].ne(raw[1]).any(1).nonzero()):
            first = int(unequal[0])
            x, y = tensor.reshape(-1)[first], other_tensor.reshape(-1)[first]
            count = f"{len(unequal)} of {tensor.numel()} elements differ"
            yield Difference(
                where, f"{text}, {count}; element {first} is {x.item()}", f"{y.item()}"
            )


def _inside(value: Any) -> tuple[str, dict[Any, Any] | None]:
    """Return what kind of value it is, and what is in it, if anything can be."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return "tensor", None
    if value is _ABSENT or value is None or kind in ("bool", "int", "float", "str"):
        return kind, None
    if kind == "list":
        return kind, dict(enumerate(value))
    if kind == "dict":
        return kind, value
    kind, (first, *others) = parts_of(value, "")
    inside = _inside(first)[1]
    if inside is not None:
        inside = {**inside, **{f".{place}": part for place, part in enumerate(others, start=1)}}
    return kind, inside


def _leaf(value: Any, kind: str) -> tuple[str, torch.Tensor | None]:
    """Return what is shown of a value, and the tensor in it."""
    if value is _ABSENT or _inside(value)[1] is not None:
        return "absent" if value is _ABSENT else kind, None
    node, tensors = flatten(value)
    if not tensors:
        return repr(value), None
    (tensor,) = tensors.values()
    if kind == "ndarray":
        with suppress(TypeError, ValueError):  # a dtype foreign to torch: its bytes are compared
            tensor, kind = torch.from_numpy(value.copy()), "tensor"
    return str(TensorSpec.of(tensor)) if kind == "tensor" else str(node), tensor
