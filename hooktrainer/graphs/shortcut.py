"""`Shortcut`: the way from the arguments of a compiled function straight to its graph, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Compiled = Callable[..., Sequence[Any]]


class Shortcut:
    """Calls a graph with tensors like those of a call that was seen, and nothing in between.

    ``torch.compile`` looks at every call whether all is as it was compiled for, picks the graph's
    inputs out of the arguments and puts its outputs into the result. For graphs of some hundred
    microseconds that is a good part of their time. What goes where is found out by identity.

    Args:
        compiled: The graph.
        inputs: What it was called with.
        outputs: What it returned.
        args: What the function was called with.
        result: What the function returned.

    Raises:
        LookupError: If something in the result came neither from the graph nor the arguments.

    Attributes:
        compiled: The graph.
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
        places = {id(leaf): place for place, leaf in enumerate(_leaves(args))}
        # What is not among the arguments, such as a parameter of a module, stays as it is.
        self._fixed = list(inputs)
        self._moving = [
            (place, places[id(value)]) for place, value in enumerate(inputs) if id(value) in places
        ]
        for place, _ in self._moving:
            self._fixed[place] = None
        ours = {id(value): place for place, value in enumerate(outputs)}
        theirs = {key: place + len(outputs) for key, place in places.items()}
        self._result = _template(result, theirs | ours)

    @classmethod
    def found(cls, *seen: Any) -> Shortcut | None:
        """The shortcut by what was seen; ``None`` if there is none."""
        try:
            return cls(*seen)
        except LookupError:
            return None

    def __call__(self, args: Sequence[Any]) -> Any:
        """What the function returns of these arguments."""
        given, inputs = _leaves(args), self._fixed.copy()
        for place, source in self._moving:
            inputs[place] = given[source]
        return _filled(self._result, [*self.compiled(*inputs), *given])


class _Place(int):
    """Where in a list a part of the result is."""


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    _collect(tree, found)
    return found


def _collect(tree: Any, found: list[Any]) -> None:
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, dict):
        for value in tree.values():
            _collect(value, found)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            _collect(value, found)


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
