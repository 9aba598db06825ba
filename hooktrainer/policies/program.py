"""A function of tensors as plain data: a list of calls of ATen, PyTorch's basic operators.

It can only compute. Operators and argument types are restricted (`calls`), and the memory they need
is computed before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ..errors import CheckpointError
from .calls import DTYPES, Call

MOST_STEPS: Final = 10_000
"""Largest number of calls in a program."""
MOST_BYTES: Final = 1 << 30
"""Memory for one observation, in addition to four times that of the weights."""
MOST_DIMS: Final = 16
"""Largest number of dimensions of a tensor."""
_CHOICES: Final = ("argmax", "gt", "ge")
_MOVES: Final = (
    *("_to_copy", "alias", "cat", "clone", "expand"),
    *("permute", "squeeze", "unsqueeze", "view"),
)
_OVERHEAD = 1 << 10  # bytes of a tensor without content, at least


class Program:
    """Computes tensors from tensors.

    Values are referred to as ``%<name>``. An argument is a number, a boolean, ``None``, such a
    name, a list of these, or an object with one key: ``batch`` (a multiple of the batch size),
    ``dtype``, ``layout``, ``memory_format``, ``float`` (inf, -inf or nan) or ``text``. Devices are
    ignored.

    Args:
        description: ``inputs``, the names of the inputs; ``steps``, each a list of the name of the
            result, the operator, its arguments and its keyword arguments; ``outputs``, the names of
            the results.
        weights: Tensors by name.
        random: Whether it may draw random numbers, from torch's global generator.

    Attributes:
        names: The weights' names.
        weights: The weights, in this order.
    """

    def __init__(
        self, description: Mapping[str, Any], weights: Mapping[str, Tensor], *, random: bool = False
    ) -> None:
        self.names, self.weights = list(weights), list(weights.values())
        self._calls: list[Call] = []
        index: dict[str, int] = {}  # of each value: inputs, weights, then results

        def add(name: str) -> None:
            if not isinstance(name, str) or name in index:
                raise ValueError(f"two values are called {name!s:.80}, or that is no name")
            index[name] = len(index)

        try:
            for name in (*description["inputs"], *weights):
                add(name)
            self._inputs = len(index) - len(weights)
            if wrong := [n for n, weight in weights.items() if weight.dtype not in DTYPES.values()]:
                raise ValueError(f"{wrong[0]} is {weights[wrong[0]].dtype}")
            if len(steps := list(description["steps"])) > MOST_STEPS:
                raise ValueError(f"it has {len(steps):,} steps, and {MOST_STEPS:,} are the most")
            for result, target, args, kwargs in steps:
                self._calls.append(Call(target, args, dict(kwargs), index, random))
                add(result)
            self._outputs = [index[name.removeprefix("%")] for name in description["outputs"]]
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"this is not a program of a policy: {type(error).__name__}: {error!s:.200}."
            ) from None
        self._limit = limit(self.weights)
        self._for_one: int | None = None  # bytes
        self._checked: set[tuple[Any, ...]] = set()

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Run the program on tensors ``[batch, ...]``."""
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._checked:
            self.check(*inputs)
            self._checked.add(key)
        return self.compute([*inputs, *self.weights], len(inputs[0]))

    def compute(self, values: list[Any], batch: Any) -> list[Tensor]:
        """Compute the results of the inputs and all weights, unchecked; to be traced."""
        for call in self._calls:
            values.append(call.run(call.arguments(values, batch)))
        return [values[index] for index in self._outputs]

    def scores(self, values: list[Any], batch: Any, outputs: int) -> list[Tensor]:
        """Compute, as `compute`, what the first ``outputs`` results are chosen by."""
        self.compute(values, batch)
        return [values[one] for index in self._outputs[:outputs] for one in self._scores_of(index)]

    def _scores_of(self, index: int) -> list[int]:
        """The values that a value is chosen by, through operators that only move numbers."""
        number = index - self._inputs - len(self.weights)
        if number < 0:
            return [index]
        call = self._calls[number]
        name, operands = call.target.split(".")[1], call.operands
        if name in _CHOICES:
            return operands[:1]
        if name not in _MOVES:
            return [index]
        found = [one for operand in operands for one in self._scores_of(operand)]
        return [index] if found == operands else found

    @torch.no_grad()
    def check(self, *inputs: Tensor) -> list[Tensor]:
        """Compute the results' shapes, and check the memory needed, on the device ``meta``.

        For one observation the bound is `limit`; for several it grows in proportion. Only the
        shapes and types of the inputs ``[batch, ...]`` matter.
        """
        if len(inputs) != self._inputs or not inputs or any(x.dim() < 1 for x in inputs):
            raise CheckpointError(
                f"the policy's program takes {self._inputs} inputs, not {len(inputs)}."
            )
        if self._for_one is None:
            one = [x.new_empty((1, *x.shape[1:]), device="meta") for x in inputs]
            self._for_one, _ = self._measure(one, self._limit)
        return self._measure(inputs, max(len(inputs[0]), 1) * self._for_one)[1]

    def _measure(self, inputs: Sequence[Tensor], most: int) -> tuple[int, list[Tensor]]:
        """The bytes that the program needs, and its results on ``meta``."""
        values: list[Any] = [value.to("meta") for value in (*inputs, *self.weights)]
        batch, total = len(inputs[0]), sum(bytes_of("an input", value) for value in inputs)
        for call in self._calls:
            arguments = call.arguments(values, batch, "meta")
            total += call.check(arguments)
            if total <= most:  # the operator's working memory comes first
                values.append(call.run(arguments))
                total += bytes_of(call.target, values[-1])
            if total > most:
                raise CheckpointError(
                    f"the policy's program would take {total / 1e9:,.1f} GB for {batch:,} "
                    f"observation{'s' * (batch != 1)} ({call.target}); it may take "
                    f"{most / 1e9:,.1f} GB."
                )
        outputs = [values[index] for index in self._outputs]
        if not all(isinstance(output, Tensor) for output in outputs):
            raise CheckpointError("the policy's program does not return tensors.")
        return total, outputs


def bytes_of(target: str, result: Any) -> int:
    """Return an upper bound of a result's memory: views count as copies, parts of a list do not."""
    total = 0
    for tensor in result if isinstance(result, (list, tuple)) else [result]:
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            raise CheckpointError(f"{target} gives what is no plain tensor.")
        if tensor.dim() > MOST_DIMS:
            raise CheckpointError(f"{target} gives a tensor of {tensor.dim()} dimensions.")
        # Not numel(), which overflows.
        total += math.prod(tensor.shape) * tensor.element_size() + _OVERHEAD
    return 0 if target == "getitem" else total


def limit(weights: Sequence[Tensor]) -> int:
    """Return how many bytes a program with these weights may need for one observation."""
    return MOST_BYTES + 4 * sum(weight.nbytes for weight in weights)
