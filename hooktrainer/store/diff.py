"""Comparing two state trees leaf by leaf, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..base.untrusted import one_line
from .tree import Json, TensorSpec, byte_view, flatten, unflatten

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
    (node, tensors), (other, others) = flatten(left), flatten(right)

    def compare(node: Json, other: Json, path: str) -> Iterator[Difference]:
        (kind, ours), (other_kind, theirs) = _inside(node), _inside(other)
        if kind == other_kind and ours is not None and theirs is not None:
            for key in {**ours, **theirs}:
                inner = f"{path}/{key}" if path else str(key)
                yield from compare(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), inner)
            return
        text, tensor = _leaf(node, tensors)
        other_text, other_tensor = _leaf(other, others)
        where = path or "the state"
        if (kind, text) != (other_kind, other_text):
            yield Difference(where, one_line(text, 80), one_line(other_text, 80))
        elif tensor is not None and other_tensor is not None:
            raw = [byte_view(x).reshape(x.numel(), x.itemsize) for x in (tensor, other_tensor)]
            if len(unequal := raw[0].ne(raw[1]).any(1).nonzero()):
                first = int(unequal[0])
                x, y = tensor.reshape(-1)[first], other_tensor.reshape(-1)[first]
                text += f", {len(unequal)} of {tensor.numel()} elements differ"
                yield Difference(where, f"{text}; element {first} is {x.item()}", f"{y.item()}")

    yield from compare(node, other, "")


def _inside(node: Json) -> tuple[str, dict[Any, Json] | None]:
    """Return the type that a node is of, and the nodes in it by name, if there can be any."""
    kind = type(node).__name__
    if kind == "list":
        return kind, {str(place): part for place, part in enumerate(node)}
    if kind != "dict" or not next(iter(node), "").startswith("$"):
        return kind, node if kind == "dict" else None
    ((tag, (first, *others)),) = node.items()
    if tag == "$dict":
        # A key that is no number or text, such as a tuple, is a node too.
        pairs = ((json.dumps(key) if type(key) is dict else key, part) for key, part in first)
        return "dict", dict(pairs)
    inside = None if tag == "$tensor" else _inside(first)[1]
    if inside is not None:
        inside = {**inside, **{f".{place}": part for place, part in enumerate(others, start=1)}}
    return tag.removeprefix("$"), inside


def _leaf(node: Json, tensors: Mapping[str, torch.Tensor]) -> tuple[str, torch.Tensor | None]:
    """Return what is shown of a node, and the tensor in it."""
    kind, inside = _inside(node)
    if node is _ABSENT or inside is not None:
        return "absent" if node is _ABSENT else kind, None
    first = node
    others: list[Json] = []
    while type(first) is dict and "$tensor" not in first:
        ((first, *others),) = first.values()
    if type(first) is not dict:
        return repr(unflatten(node, {})), None
    tensor = tensors[first["$tensor"][0]]
    if kind == "ndarray":
        with suppress(TypeError, ValueError):  # a dtype foreign to torch: its bytes are compared
            tensor, others = torch.from_numpy(unflatten(node, tensors)), []
    return " ".join([str(TensorSpec.of(tensor)), *map(str, others)]), tensor
