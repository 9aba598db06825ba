"""A function of tensors as plain data: a list of calls of ATen, PyTorch's basic operators.

It can only compute. Operators and argument types are restricted (`calls`), and the memory they need
is computed before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor

from ..errors import CheckpointError
from .calls import DTYPES, Call


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
    """

    def __init__(
        self, description: Mapping[str, Any], weights: Mapping[str, Tensor], *, random: bool = False
    ) -> None:
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
                call = Call(target, args, dict(kwargs), self._index, random)
                call.result = self._name(result)
                self._calls.append(call)
            self._outputs = [self._index[name.removeprefix("%")] for name in description["outputs"]]
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"this is not a program of a policy: {type(error).__name__}: {error!s:.200}."
            ) from None
        self._limit = limit(list(weights.values()))
        self._checked: set[tuple[Any, ...]] = set()
        self._for_one: int | None = None  # bytes
        self._values: list[Any] = []
        self._rest: list[Call] = []

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Run the program on tensors ``[batch, ...]``."""
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._checked:
            self.check(*inputs)
            self._checked.add(key)
        values = self._values.copy()
        for index, value in zip(self._inputs, inputs, strict=True):
            values[index] = value
        _run(self._rest, values, len(inputs[0]))
        return [values[index] for index in self._outputs]

    @torch.no_grad()
    def check(self, *inputs: Tensor) -> list[Tensor]:
        """Compute the results' shapes, and check the memory needed, on the device ``meta``.

        For one observation the bound is `limit`; for several it grows in proportion. Only the
        shapes and types of the inputs ``[batch, ...]`` matter.
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

    def _measure(self, inputs: Sequence[Tensor], most: int) -> tuple[int, list[Tensor]]:
        """The bytes that the program needs, and its results on ``meta``."""
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
        if not all(isinstance(output, Tensor) for output in outputs):
            raise CheckpointError("the policy's program does not return tensors.")
        return total, outputs

    def _prepare(self) -> None:
        """Compute once what depends on the weights alone, such as a transpose."""
        values: list[Any] = [None] * len(self._index)
        for name, weight in self._weights.items():
            values[self._index[name]] = weight
        known = {self._index[name] for name in self._weights}
        constant = []
        for call in self._calls:
            if call.is_constant and call.reads <= known:
                constant.append(call)
                known.add(call.result)
            else:
                self._rest.append(call)
        _run(constant, values, 0)
        self._values = values

    def _name(self, name: str) -> int:
        if not isinstance(name, str):
            raise TypeError(f"{name!r:.80} is no name")
        if name in self._index:
            raise ValueError(f"two values are called {name}")
        self._index[name] = len(self._index)
        return self._index[name]


def _run(calls: Sequence[Call], values: list[Any], batch: int) -> None:
    """Fill in the results of calls."""
    for call in calls:
        try:
            values[call.result] = call(values, batch)
        except Exception as error:
            raise _failed(call, error) from None


def _one(batch: Tensor) -> Tensor:
    return torch.empty((1, *batch.shape[1:]), dtype=batch.dtype, device="meta")


def _failed(call: Call, error: Exception) -> CheckpointError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return CheckpointError(f"the policy's operator {call.target} cannot be calculated: {reason}")


# -- How much memory a program may take, found out before it takes any.

MOST_STEPS: Final = 10_000
"""Largest number of calls in a program."""
MOST_BYTES: Final = 1 << 30
"""Memory for one observation, in addition to four times that of the weights."""
MOST_DIMS: Final = 16
"""Largest number of dimensions of a tensor."""
MOST_PIECES: Final = 4_096
"""Largest number of tensors returned by a call."""
_OVERHEAD = 1 << 10  # bytes of a tensor without content, at least


def check_arguments(call: Call, values: Sequence[Any], batch: int) -> int:
    """Check arguments that the operator does not; return the bytes that it needs temporarily."""
    check = _CHECKS.get(call.target.partition(".")[2].partition(".")[0])
    return 0 if check is None else check(call.target, call.named(values, batch))


def bytes_of(target: str, result: Any) -> int:
    """Return an upper bound of a result's memory: views count as copies."""
    tensors = result if isinstance(result, (list, tuple)) else [result]
    total = 0
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            raise CheckpointError(f"{target} gives what is no plain tensor.")
        if tensor.dim() > MOST_DIMS:
            raise CheckpointError(f"{target} gives a tensor of {tensor.dim()} dimensions.")
        # Not numel(), which overflows.
        total += math.prod(tensor.shape) * tensor.element_size() + _OVERHEAD
    return total


def _pieces(target: str, arguments: Mapping[str, Any]) -> int:
    """Bound the number of pieces of a split."""
    tensor, dim = arguments["self"], int(arguments.get("dim") or 0)
    shape = list(tensor.shape)
    size = shape[dim] if -len(shape) <= dim < len(shape) else 0
    if target == "aten.split.Tensor":
        size = -(-size // max(int(arguments["split_size"]), 1))
    if size > MOST_PIECES:
        raise CheckpointError(f"{target} cuts a tensor into {size:,} pieces.")
    return 0


def _convolution(target: str, arguments: Mapping[str, Any]) -> int:
    """Memory of the columns that a convolution may be unfolded into."""
    given, weight = arguments["input"], arguments["weight"]
    spatial = weight.dim() - 2
    low = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    numbers = {name: _repeated(arguments[name], spatial) for name in low}
    fits = 1 <= spatial <= 3 and given.dim() in (spatial + 1, spatial + 2)
    fits = fits and all(len(numbers[name]) == spatial for name in low)
    fits = fits and all(least <= n < 1 << 20 for name, least in low.items() for n in numbers[name])
    if not fits or arguments["groups"] < 1 or 0 in weight.shape:
        raise CheckpointError(f"{target} has arguments that do not fit together.")
    places = given.shape[-spatial:]
    if not arguments["transposed"]:
        rows = zip(
            *(places, weight.shape[2:], numbers["stride"], numbers["padding"]),
            numbers["dilation"],
            strict=True,
        )
        places = [
            max(0, (size + 2 * pad - dilation * (length - 1) - 1) // stride + 1)
            for size, length, stride, pad, dilation in rows
        ]
    batch = given.shape[0] if given.dim() > spatial + 1 else 1
    across = math.prod(weight.shape[1:]) * arguments["groups"] * weight.element_size()
    return batch * math.prod(places) * across


def _repeated(value: Any, count: int) -> list[int]:
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


def _scales(target: str, arguments: Mapping[str, Any]) -> int:
    """Bound the scale factors of an interpolation."""
    scales = [v for n, v in arguments.items() if n.startswith("scale") and v is not None]
    scales = list(chain.from_iterable(v if isinstance(v, list) else [v] for v in scales))
    if not all(1e-3 <= scale <= 1e3 for scale in scales):
        raise CheckpointError(f"{target} scales by {scales}.")
    return 0


def _padding(target: str, arguments: Mapping[str, Any]) -> int:
    """Refuse negative padding."""
    if any(pad < 0 for pad in _repeated(arguments["padding"], 1)):
        raise CheckpointError(f"{target} pads by {arguments['padding']}.")
    return 0


def _division(target: str, arguments: Mapping[str, Any]) -> int:
    """Refuse integer division towards zero: the least integer by -1 crashes the processor."""
    tensors = [arguments["self"], arguments["other"]]
    floats = any(
        value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, float)
        for value in tensors
    )
    if arguments.get("rounding_mode") == "trunc" and not floats:
        raise CheckpointError(f"{target} divides integers towards zero; use rounding_mode='floor'.")
    return 0


def _masks(target: str, arguments: Mapping[str, Any]) -> int:
    """Memory of a mask's indices."""
    masks = [t for t in arguments["indices"] if t is not None and t.element_size() == 1]
    if masks and target.startswith("aten.index."):
        raise CheckpointError(f"{target} takes as many values as a mask has; use torch.where.")
    return sum(8 * (mask.dim() + 1) * math.prod(mask.shape) for mask in masks)


_CHECKS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], int]]] = {
    **dict.fromkeys(("split", "unbind"), _pieces),
    "convolution": _convolution,
    **dict.fromkeys(
        (
            *("upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d"),
            *("upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d"),
        ),
        _scales,
    ),
    **{f"{kind}_pad{n}d": _padding for kind in ("reflection", "replication") for n in (1, 2, 3)},
    "div": _division,
    **dict.fromkeys(("index", "index_put"), _masks),
}


def limit(weights: Sequence[Tensor]) -> int:
    """Return how many bytes a program with these weights may need for one observation."""
    return MOST_BYTES + 4 * sum(weight.nbytes for weight in weights)
