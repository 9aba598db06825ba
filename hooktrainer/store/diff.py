"""Comparing two state trees leaf by leaf, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from ..base.untrusted import one_line
from .tree import Json, TensorSpec, byte_view, flatten, unflatten


@dataclass(frozen=True)
class Difference:
    """One place where two trees differ."""

    path: str
    """Where, such as ``modules/policy/0.weight``."""
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.left} | {self.right}"


class _Node(NamedTuple):
    kind: str
    text: str
    tensor: torch.Tensor | None = None


_Where: TypeAlias = tuple[Any, ...]
_ABSENT = _Node("absent", "absent")


def compare_trees(left: Any, right: Any) -> Iterator[Difference]:
    """Yield where two state trees differ, in the order of the left one.

    Types count, and floats are compared by their bits: NaN equals NaN, and 0.0 differs from -0.0.
    Memory shared by tensors does not count, nor do strides.

    Raises:
        CheckpointError: If a tree holds what cannot be saved; see `flatten`.
    """
    ours, theirs = (dict(_nodes(*flatten(tree), ())) for tree in (left, right))
    unlike: set[_Where] = set()  # of other kinds: what is in them is not compared
    for where in {**ours, **theirs}:
        if any(where[:depth] in unlike for depth in range(len(where))):
            continue
        a, b = ours.get(where, _ABSENT), theirs.get(where, _ABSENT)
        path = "/".join(map(str, where)) or "the state"
        if (a.kind, a.text) != (b.kind, b.text):
            unlike |= {where} if a.kind != b.kind else set()
            yield Difference(path, one_line(a.text, 80), one_line(b.text, 80))
        elif a.tensor is not None and b.tensor is not None:
            raw = [byte_view(x).reshape(x.numel(), x.itemsize) for x in (a.tensor, b.tensor)]
            if len(unequal := raw[0].ne(raw[1]).any(1).nonzero()):
                first = int(unequal[0])
                x, y = a.tensor.reshape(-1)[first], b.tensor.reshape(-1)[first]
                count = f"{len(unequal)} of {a.tensor.numel()} elements differ"
                text = f"{a.text}, {count}; element {first} is {x.item()}"
                yield Difference(path, text, f"{y.item()}")


def _nodes(
    node: Json, tensors: Mapping[str, torch.Tensor], where: _Where
) -> Iterator[tuple[_Where, _Node]]:
    """Yield each value of a tree, containers too, with the keys that lead to it."""
    kind, text, tensor = type(node).__name__, repr(node), None
    parts = _entries(node)
    if parts is not None:
        text = kind
    elif isinstance(node, dict):
        kind = text = tag = next(iter(node))
        if tag in ("$tensor", "$ndarray"):
            with suppress(TypeError):  # a dtype foreign to torch: as bytes
                tensor = torch.as_tensor(unflatten(node, tensors))
                text = str(TensorSpec.of(tensor))
        if tensor is None:
            first, *others = node[tag]
            parts = _entries(first)
            if parts is None and isinstance(first, dict):
                parts = {tag: first}
            elif parts is None:
                text, parts = f"{tag[1:]} {first}", {}
            parts |= {f".{place}": part for place, part in enumerate(others, start=1)}
    yield where, _Node(kind, text, tensor)
    for key, item in (parts or {}).items():
        yield from _nodes(item, tensors, (*where, key))


def _entries(node: Json) -> dict[Any, Json] | None:
    """Return what a list or a dict holds; ``None`` for anything else."""
    if isinstance(node, list):
        return dict(enumerate(node))
    if not isinstance(node, dict) or not next(iter(node), "").startswith("$"):
        return dict(node) if isinstance(node, dict) else None
    if "$dict" not in node:
        return None
    return {k if isinstance(k, str | int) else repr(k): item for k, item in node["$dict"][0]}
