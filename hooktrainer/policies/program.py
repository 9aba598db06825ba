"""A function of tensors as plain data: a list of calls of ATen, PyTorch's basic operators.

A program needs no Python code but this file's, and can do nothing but calculate: operators that
write to their arguments, draw random numbers or touch files are refused when it is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import CheckpointError

# Operators without a tensor among their arguments that only make one.
_MAKERS = {"arange", "empty", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"}

_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


class Program:
    """Calculates tensors from tensors.

    Values are named ``%<name>`` where they are used. An argument is a number, a boolean, ``None``,
    such a name, a list of these, or an object with one key: ``batch`` (so many times the batch
    size), ``dtype``, ``device``, ``layout``, ``memory_format``, ``float`` (what JSON lacks: inf,
    -inf and nan) or ``text``.

    Args:
        description: ``inputs``, the names of what is passed; ``steps``, each a list of the name of
            the result, the operator, its arguments and its keyword arguments; ``outputs``, the
            names of what is returned.
        weights: Tensors by name.

    Raises:
        CheckpointError: If the description is none, or an operator is unknown or not allowed.
    """

    def __init__(self, description: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
        self._index: dict[str, int] = {}
        self._values: list[Any] = []
        known: set[int] = set()
        try:
            self._inputs = [self._name(name) for name in description["inputs"]]
            for name, weight in weights.items():
                known.add(self._name(name, weight))
            self._steps: list[_Step] = []
            for result, target, args, kwargs in description["steps"]:
                step = _Step(resolve(target), args, kwargs, self._index)
                step.result = self._name(result)
                if step.reads <= known and not step.needs_batch:  # a weight's transpose
                    self._values[step.result] = step(self._values, 0)
                    known.add(step.result)
                else:
                    self._steps.append(step)
            self._outputs = [self._index[name.removeprefix("%")] for name in description["outputs"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"this is not a program of a policy: {error!r}.") from None

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Calculate.

        Args:
            *inputs: Tensors ``[batch, ...]``.

        Returns:
            Tensors ``[batch, ...]``.
        """
        values = self._values.copy()
        for index, value in zip(self._inputs, inputs, strict=True):
            values[index] = value
        batch = len(inputs[0])
        for step in self._steps:
            values[step.result] = step(values, batch)
        return [values[index] for index in self._outputs]

    def _name(self, name: str, value: Any = None) -> int:
        if name in self._index:
            raise ValueError(f"two values are called {name}")
        self._index[name] = len(self._values)
        self._values.append(value)
        return self._index[name]


class _Step:
    """One call: its constant arguments, and where the others are filled in."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        index: Mapping[str, int],
    ) -> None:
        self.result = -1
        self.reads: set[int] = set()
        self.needs_batch = False
        self._function = function
        self._kwargs = {name: self._constant(value) for name, value in kwargs.items()}
        self._args: list[Any] = []
        self._values: list[tuple[int, int]] = []
        self._trees: list[tuple[int, Any]] = []
        for place, argument in enumerate(args):
            if isinstance(argument, str):
                number = index[argument.removeprefix("%")]
                self.reads.add(number)
                self._values.append((place, number))
                self._args.append(None)
            elif self._varies(argument, index):
                self._trees.append((place, self._indexed(argument, index)))
                self._args.append(None)
            else:
                self._args.append(self._constant(argument))

    def __call__(self, values: Sequence[Any], batch: int) -> Any:
        args = self._args.copy()
        for place, number in self._values:
            args[place] = values[number]
        for place, tree in self._trees:
            args[place] = _fill(tree, values, batch)
        return self._function(*args, **self._kwargs)

    def _varies(self, argument: Any, index: Mapping[str, int]) -> bool:
        if isinstance(argument, list):
            found = [self._varies(item, index) for item in argument]  # all, to note what is read
            return any(found)
        if isinstance(argument, str):
            self.reads.add(index[argument.removeprefix("%")])
            return True
        if isinstance(argument, dict) and "batch" in argument:
            self.needs_batch = True
            return True
        return False

    def _indexed(self, argument: Any, index: Mapping[str, int]) -> Any:
        if isinstance(argument, list):
            return [self._indexed(item, index) for item in argument]
        if isinstance(argument, str):
            return _Value(index[argument.removeprefix("%")])
        if isinstance(argument, dict) and "batch" in argument:
            return _Batch(int(argument["batch"]))
        return self._constant(argument)

    def _constant(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self._constant(item) for item in argument]
        if not isinstance(argument, dict):
            return argument
        ((kind, value),) = argument.items()
        if kind in _KINDS:
            found = vars(torch).get(value)
            if not isinstance(found, _KINDS[kind]):
                raise ValueError(f"{value!r} is no {kind}")
            return found
        if kind == "device":
            return torch.device("cpu")
        return {"float": float, "text": str}[kind](value)


class _Value(int):
    """The number of a value, in a list of arguments."""


class _Batch(int):
    """How many times the batch size."""


def _fill(tree: Any, values: Sequence[Any], batch: int) -> Any:
    if isinstance(tree, list):
        return [_fill(item, values, batch) for item in tree]
    if isinstance(tree, _Value):
        return values[tree]
    return tree * batch if isinstance(tree, _Batch) else tree


def resolve(target: str) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten.add.Tensor``.

    Raises:
        CheckpointError: If there is none in this PyTorch, or it does more than calculate.
    """
    if target == "getitem":
        return operator.getitem
    try:
        space, name, overload = target.split(".")
        found = getattr(getattr(getattr(torch.ops, space), name), overload)
    except (AttributeError, ValueError):
        raise CheckpointError(
            f"the policy uses the operator {target!r}, which PyTorch {torch.__version__} lacks: "
            "use the version that saved it."
        ) from None
    if reason := objection(found):
        raise CheckpointError(f"the policy uses the operator {target!r}, which {reason}.")
    return found


def objection(op: Any) -> str | None:
    """Why an operator may not be part of a program; ``None`` if it may."""
    schema = getattr(op, "_schema", None)
    if getattr(op, "namespace", None) != "aten" or schema is None:
        return "is not one of ATen"
    if schema.is_mutable:
        return "writes to its arguments"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "draws random numbers"
    takes_tensor = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if not takes_tensor and schema.name.removeprefix("aten::") not in _MAKERS:
        return "does more than calculate"
    return None
