"""A function of tensors as plain data: a list of calls of ATen, PyTorch's basic operators.

A program needs no Python code but what is here, and can do nothing but calculate: which operators
it may call is a list (`operators`), what they are passed is checked by type (`calls`), and how much
memory they may take is found out before (`bounds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import CheckpointError
from .bounds import MOST_STEPS, bytes_of, check_arguments, limit
from .calls import DTYPES, Call


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
        self._weights = dict(weights)
        try:
            self._inputs = [self._name(name) for name in description["inputs"]]
            for name, weight in weights.items():
                if weight.dtype not in DTYPES.values():
                    raise ValueError(f"{name} is {weight.dtype}")
                self._name(name)
            if len(steps := list(description["steps"])) > MOST_STEPS:
                raise ValueError(f"it has {len(steps):,} steps, and {MOST_STEPS:,} are the most")
            self._calls: list[Call] = []
            for result, target, args, kwargs in steps:
                call = Call(target, args, dict(kwargs), self._index)
                call.result = self._name(result)
                self._calls.append(call)
            self._outputs = [self._index[name.removeprefix("%")] for name in description["outputs"]]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"this is not a program of a policy: {type(error).__name__}: {error!s:.200}."
            ) from None
        self._limit = limit(list(weights.values()))
        self._checked: set[tuple[Any, ...]] = set()
        self._for_one: int | None = None  # bytes
        self._values: list[Any] = []
        self._rest: list[Call] = []

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Calculate.

        Args:
            *inputs: Tensors ``[batch, ...]``.

        Returns:
            Tensors ``[batch, ...]``.

        Raises:
            CheckpointError: If it cannot be, or would take more memory than it may.
        """
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._checked:
            self.check(*inputs)
            self._checked.add(key)
        values = self._values.copy()
        for index, value in zip(self._inputs, inputs, strict=True):
            values[index] = value
        batch = len(inputs[0])
        for call in self._rest:
            try:
                values[call.result] = call(values, batch)
            except Exception as error:
                raise _failed(call, error) from None
        return [values[index] for index in self._outputs]

    @torch.no_grad()
    def check(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Find out what the program would return and take, without taking it.

        For one observation it may take `bounds.limit`; for several, no more than in proportion.

        Args:
            *inputs: Tensors ``[batch, ...]``, of which shape and type matter alone.

        Returns:
            Tensors on the device ``meta``.

        Raises:
            CheckpointError: If it cannot be calculated, or would take too much memory.
        """
        if len(inputs) != len(self._inputs) or not inputs or any(x.dim() < 1 for x in inputs):
            raise CheckpointError(
                f"the policy's program takes {len(self._inputs)} inputs, not {len(inputs)}."
            )
        if self._for_one is None:
            self._for_one, _ = self._measure([_one(x) for x in inputs], self._limit)
            self._prepare()
        batch = len(inputs[0])
        return self._measure(inputs, max(batch, 1) * self._for_one)[1]

    def _measure(self, inputs: Sequence[torch.Tensor], most: int) -> tuple[int, list[torch.Tensor]]:
        """Bytes that the program takes, and what it returns, without content."""
        values: list[Any] = [None] * len(self._index)
        for name, weight in self._weights.items():
            values[self._index[name]] = weight.to("meta")
        for index, given in zip(self._inputs, inputs, strict=True):
            values[index] = given.to("meta")
        batch, total = len(inputs[0]), 0
        for call in self._calls:
            try:
                total += check_arguments(call, values, batch)
                # The operator's own memory comes first, then that of its result.
                result = None if total > most else call(values, batch, "meta")
            except CheckpointError:
                raise
            except Exception as error:
                raise _failed(call, error) from None
            if result is not None and call.target != "getitem":
                total += bytes_of(call.target, result)
            if total > most:
                raise CheckpointError(
                    f"the policy's program would take {total / 1e9:,.1f} GB for {batch:,} "
                    f"observation{'s' * (batch != 1)} ({call.target}); it may take "
                    f"{most / 1e9:,.1f} GB."
                )
            values[call.result] = result
        outputs = [values[index] for index in self._outputs]
        if not all(isinstance(output, torch.Tensor) for output in outputs):
            raise CheckpointError("the policy's program does not return tensors.")
        return total, outputs

    def _prepare(self) -> None:
        """Calculate once what depends on the weights alone, such as a weight's transpose."""
        values: list[Any] = [None] * len(self._index)
        known = set()
        for name, weight in self._weights.items():
            values[self._index[name]] = weight
            known.add(self._index[name])
        rest = []
        for call in self._calls:
            if call.reads and call.reads <= known and not call.needs_batch:
                try:
                    values[call.result] = call(values, 0)
                except Exception as error:
                    raise _failed(call, error) from None
                known.add(call.result)
            else:
                rest.append(call)
        self._values, self._rest = values, rest

    def _name(self, name: str) -> int:
        if not isinstance(name, str):
            raise TypeError(f"{name!r:.80} is no name")
        if name in self._index:
            raise ValueError(f"two values are called {name}")
        self._index[name] = len(self._index)
        return self._index[name]


def _one(batch: torch.Tensor) -> torch.Tensor:
    return torch.empty((1, *batch.shape[1:]), dtype=batch.dtype, device="meta")


def _failed(call: Call, error: Exception) -> CheckpointError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return CheckpointError(f"the policy's operator {call.target} cannot be calculated: {reason}")
