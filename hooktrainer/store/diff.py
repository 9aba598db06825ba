"""Comparing two state trees leaf by leaf, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from .tensor_spec import byte_view
from .tree import Json, flatten, join, unflatten


@dataclass(frozen=True)
class Difference:
    """One place where two trees differ."""

    path: str
    """Where, such as ``modules/policy/0.weight``."""
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.left} | {self.right}"


class _Side(NamedTuple):
    node: Json
    tensors: Mapping[str, torch.Tensor]


_ABSENT = object()
_WITH_TENSOR = ("$tensor", "$ndarray", "$bytes", "$bytearray")


def compare_trees(left: Any, right: Any) -> Iterator[Difference]:
    """Yield where two state trees differ, in the order of the left one.

    Types count, and floats are compared by their bits: NaN equals NaN, and 0.0 differs from -0.0.
    Memory shared by tensors does not count, nor do strides.

    Raises:
        CheckpointError: If a tree holds what cannot be saved; see `flatten`.
    """
    yield from _compare(_Side(*flatten(left)), _Side(*flatten(right)), "")


def _compare(left: _Side, right: _Side, path: str) -> Iterator[Difference]:
    a, b = left.node, right.node
    a_tensor, b_tensor = _tensor(left), _tensor(right)
    if a_tensor is not None and b_tensor is not None and _rest(a) == _rest(b):
        if not _same_tensor(a_tensor, b_tensor):
            yield _tensor_difference(a_tensor, b_tensor, path)
    elif _kind(a) == _kind(b) and isinstance(a, dict | list):
        a_items, b_items = _children(a), _children(b)
        for key in [*a_items, *(key for key in b_items if key not in a_items)]:
            yield from _compare(
                left._replace(node=a_items.get(key, _ABSENT)),
                right._replace(node=b_items.get(key, _ABSENT)),
                path if key == "" else join(path, key),
            )
    elif _kind(a) != _kind(b) or repr(a) != repr(b):  # repr: -0.0 is not 0.0
        yield Difference(path or "the state", _show(a), _show(b))


def _tag(node: Json) -> str | None:
    tag = next(iter(node), None) if isinstance(node, dict) else None
    return tag if tag is not None and tag.startswith("$") else None


def _kind(node: Json) -> Any:
    return _tag(node) or type(node)


def _children(node: Json) -> dict[Any, Json]:
    """The parts of a container by what stands in their path; those of a tagged one, and its tag."""
    if isinstance(node, list):
        return dict(enumerate(node))
    tag = _tag(node)
    if tag is None:
        return dict(node)
    content = node[tag]
    parts: dict[Any, Json] = {}
    if tag in ("$dict", "$OrderedDict", "$TensorDict"):
        parts = {_key(key): value for key, value in content}
    elif isinstance(content, list):
        parts = dict(enumerate(content))
    elif tag not in _WITH_TENSOR:  # what names a tensor may differ where the tensors do not
        parts = {tag: content}
    return {**parts, **{f".{name}": node[name] for name in node if name != tag}}


def _key(node: Json) -> Any:
    """A dict key as it stands in a path: itself if it is a word or number, else its JSON."""
    return node if isinstance(node, str | int) else repr(node)


def _tensor(side: _Side) -> torch.Tensor | None:
    """The tensor or array of a node, if any; an array of a dtype foreign to torch as bytes."""
    tag = _tag(side.node)
    if tag not in _WITH_TENSOR:
        return None
    if tag == "$ndarray":
        with suppress(TypeError, ValueError):
            return torch.from_numpy(unflatten(side.node, side.tensors))
    return side.tensors[side.node[tag]]


def _rest(node: Json) -> Json:
    return {"": _tag(node), **{key: node[key] for key in node if not key.startswith("$")}}


def _same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(byte_view(a), byte_view(b))


def _tensor_difference(a: torch.Tensor, b: torch.Tensor, path: str) -> Difference:
    left, right = _describe(a), _describe(b)
    if left == right:
        unequal = byte_view(a).view(-1, a.itemsize).ne(byte_view(b).view(-1, a.itemsize)).any(1)
        first = int(unequal.nonzero()[0])
        count = f"{int(unequal.sum())} of {a.numel()} elements differ; element {first} is"
        left = f"{left}, {count} {a.reshape(-1)[first].item()}"
        right = f"{b.reshape(-1)[first].item()}"
    return Difference(path or "the state", left, right)


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _show(node: Json) -> str:
    if node is _ABSENT:
        return "absent"
    text = _tag(node) or (type(node).__name__ if isinstance(node, dict | list) else repr(node))
    return text if len(text) <= 80 else f"{text[:77]}..."
