"""`Shortcut`: the way from the arguments of a compiled function straight to its graph, and back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch

Compiled = Callable[..., Sequence[Any]]


class Shortcut:
    """Calls a graph with tensors like those of a call that was seen, past ``torch.compile``.

    ``torch.compile`` checks its guards at every call, selects the graph's inputs from the arguments
    and builds the result; for graphs of some hundred microseconds that is much of their time. The
    places of inputs and outputs are found by identity.

    Args:
        compiled: The graph.
        inputs: What it was called with.
        outputs: What it returned.
        args: What the function was called with.
        result: What the function returned.

    Raises:
        LookupError: If a tensor of the result is neither an output nor an argument.
    """

    def __init__(
        self,
        compiled: Compiled,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        args: Sequence[Any],
        result: Any,
    ) -> None:
        self.compiled = compiled
        leaves, self._form = _taken_apart(args)
        places = {id(leaf): place for place, leaf in enumerate(leaves)}
        # What is not among the arguments, such as a parameter of a module, stays as it is.
        self._fixed = list(inputs)
        self._moving = [
            (place, places[id(value)]) for place, value in enumerate(inputs) if id(value) in places
        ]
        for place, _ in self._moving:
            self._fixed[place] = None
        # Many are the same tensors at every call; weakly, since others are those of a batch.
        self._kinds: list[tuple[Callable[[], Any], tuple[Any, ...]]] = [
            (weakref.ref(leaf), kind_of(leaf)) for leaf in leaves
        ]
        ours = {id(value): place for place, value in enumerate(outputs)}
        theirs = {key: place + len(outputs) for key, place in places.items()}
        self._result = _template(result, theirs | ours)

    @classmethod
    def found(cls, *seen: Any) -> Shortcut | None:
        """Return the shortcut by what was seen; ``None`` if there is none."""
        try:
            return cls(*seen)
        except LookupError:
            return None

    def without_tensors(self, tensors: Sequence[torch.Tensor]) -> Shortcut:
        """Return a copy without tensors; `with_tensors` inserts others in their places.

        Raises:
            LookupError: If the graph takes a tensor that is neither an argument nor among these.
        """
        places = {id(tensor): place for place, tensor in enumerate(tensors)}
        kept = copy(self)
        kept._fixed = [
            _Place(places[id(x)]) if isinstance(x, torch.Tensor) else x for x in self._fixed
        ]
        kept._kinds = [(_gone, kind) for _, kind in self._kinds]
        return kept

    def with_tensors(self, tensors: Sequence[torch.Tensor], args: Sequence[Any]) -> Shortcut | None:
        """Return a copy with these tensors; ``None`` if it does not take these arguments."""
        if not self.takes(args):
            return None
        found = copy(self)
        found._fixed = [tensors[x] if type(x) is _Place else x for x in self._fixed]
        found._kinds = [(weakref.ref(leaf), kind_of(leaf)) for leaf in _taken_apart(args)[0]]
        return found

    def calls(self, compiled: Compiled, inputs: Sequence[Any]) -> bool:
        """Return whether it calls this graph, with these inputs where they are not arguments."""
        return self.compiled is compiled and all(
            fixed is None or fixed is value
            for fixed, value in zip(self._fixed, inputs, strict=True)
        )

    def takes(self, args: Sequence[Any]) -> bool:
        """Return whether the arguments are like those seen, but for numbers in tensors."""
        given, form = _taken_apart(args)
        return form == self._form and all(
            seen() is value or kind == kind_of(value)
            for value, (seen, kind) in zip(given, self._kinds, strict=True)
        )

    def __call__(self, args: Sequence[Any]) -> Any:
        """Call the function without gradient."""
        given, inputs = _taken_apart(args)[0], self._fixed.copy()
        for place, source in self._moving:
            inputs[place] = given[source]
        # What torch.no_grad does, which takes as long as all the rest here.
        with_grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            outputs = self.compiled(*inputs)
        finally:
            torch._C._set_grad_enabled(with_grad)
        return _filled(self._result, [*outputs, *given])


def _gone() -> None:
    """Take the place of a weak reference whose tensor is gone."""


class _Place(int):
    """Index of a part of the result in a list."""


def kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what a graph is compiled for of a tensor."""
    layout = tensor.stride() if tensor.layout is torch.strided else None
    return type(tensor), tensor.dtype, tensor.shape, layout, tensor.device, tensor.requires_grad


def _taken_apart(tree: Any) -> tuple[list[Any], list[Any]]:
    """Return the tensors in containers, and the rest: lengths, keys, plain values."""
    tensors: list[Any] = []
    form: list[Any] = []
    _take_apart(tree, tensors, form)
    return tensors, form


def _take_apart(tree: Any, tensors: list[Any], form: list[Any]) -> None:
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
    elif isinstance(tree, dict):
        form.append([*tree])
        for value in tree.values():
            _take_apart(value, tensors, form)
    elif isinstance(tree, (list, tuple)):
        form.append(len(tree))
        for value in tree:
            _take_apart(value, tensors, form)
    else:
        form.append(tree)


def _template(tree: Any, places: dict[int, int]) -> Any:
    if isinstance(tree, torch.Tensor):
        return _Place(places[id(tree)])
    if isinstance(tree, dict):
        return {key: _template(value, places) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _like(tree, [_template(value, places) for value in tree])
    return tree


def _filled(template: Any, values: Sequence[Any]) -> Any:
    kind = type(template)
    if kind is _Place:
        return values[template]
    if kind is dict:
        return {key: _filled(value, values) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return _like(template, [_filled(value, values) for value in template])
    return template


def _like(tree: list[Any] | tuple[Any, ...], values: list[Any]) -> Any:
    if isinstance(tree, list):
        return values
    return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)
