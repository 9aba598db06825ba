"""Comparing two state trees leaf by leaf, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from ..base.untrusted import one_line
from .tensor_spec import TensorSpec, byte_view
from .tree import Json, flatten, unflatten


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
_PAIRS = ("$dict", "$OrderedDict", "$TensorDict")
_WITH_TENSOR = ("$tensor", "$ndarray", "$bytes", "$bytearray")


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
    tag = next(iter(node), "") if isinstance(node, dict) else ""
    parts: dict[Any, Json] = {}
    if tag.startswith("$"):
        content, tensor, text = node[tag], None, tag
        others = {f".{name}": node[name] for name in node if name != tag}
        if tag in _WITH_TENSOR:
            tensor = tensors[content]
            with suppress(TypeError, ValueError):  # a dtype foreign to torch: as bytes
                if tag == "$ndarray":
                    tensor, others = torch.from_numpy(unflatten(node, tensors)), {}
            text = str(TensorSpec.of(tensor))
        elif tag in _PAIRS:
            parts = {k if isinstance(k, str | int) else repr(k): item for k, item in content}
        else:
            parts = dict(enumerate(content)) if isinstance(content, list) else {tag: content}
        parts |= others
        yield where, _Node(tag, text, tensor)
    else:
        container = isinstance(node, dict | list)
        kind = type(node).__name__
        text = kind if container else repr(node)
        yield where, _Node(kind, text)
        if container:
            parts = dict(enumerate(node)) if isinstance(node, list) else node
    for key, item in parts.items():
        yield from _nodes(item, tensors, (*where, key))
