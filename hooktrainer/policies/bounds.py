"""How much memory a program may take, found out before it takes any.

The program is run on tensors that have a shape and no content (PyTorch's ``meta`` device), and what
every call would take is added up: all its results, as if none was ever let go of, and what the
operator needs meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import torch

from ..errors import CheckpointError
from .calls import Call

MOST_STEPS: Final = 10_000
"""So many calls may be in a program."""

MOST_BYTES: Final = 1 << 30
"""So much memory may a program take for one observation, beside four times that of its weights."""

MOST_DIMS: Final = 16
"""So many dimensions may a tensor have."""

MOST_PIECES: Final = 4_096
"""So many tensors may a call return."""

_OVERHEAD = 1 << 10  # bytes of a tensor without content, at least


def check_arguments(call: Call, values: Sequence[Any], batch: int) -> int:
    """Refuse arguments that an operator would not check itself.

    Args:
        call: The call.
        values: All values, which may be without content.
        batch: The batch size.

    Returns:
        Bytes that it takes meanwhile, beside its results.

    Raises:
        CheckpointError: If there is one.
    """
    check = _CHECKS.get(call.target.partition(".")[2].partition(".")[0])
    return 0 if check is None else check(call.target, call.named(values, batch))


def bytes_of(target: str, result: Any) -> int:
    """Return the memory that a result takes, at most: views count as if they were copies.

    Raises:
        CheckpointError: If it is none of tensors, or has too many dimensions.
    """
    tensors = result if isinstance(result, (list, tuple)) else [result]
    total = 0
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            raise CheckpointError(f"{target} gives what is no plain tensor.")
        if tensor.dim() > MOST_DIMS:
            raise CheckpointError(f"{target} gives a tensor of {tensor.dim()} dimensions.")
        # Not numel(), which overflows.
        total += math.prod(tensor.shape) * tensor.element_size() + _OVERHEAD
    return total


def _pieces(target: str, arguments: Mapping[str, Any]) -> int:
    """What is cut into pieces: how many there will be."""
    tensor, dim = arguments["self"], int(arguments.get("dim") or 0)
    shape = list(tensor.shape)
    size = shape[dim] if -len(shape) <= dim < len(shape) else 0
    if target == "aten.split.Tensor":
        size = -(-size // max(int(arguments["split_size"]), 1))
    if size > MOST_PIECES:
        raise CheckpointError(f"{target} cuts a tensor into {size:,} pieces.")
    return 0


def _convolution(target: str, arguments: Mapping[str, Any]) -> int:
    """The columns that a convolution may be unfolded into."""
    given, weight = arguments["input"], arguments["weight"]
    spatial = weight.dim() - 2
    numbers = {
        name: _repeated(arguments[name], spatial)
        for name in ("stride", "padding", "dilation", "output_padding")
    }
    low = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    fits = given.dim() in (spatial + 1, spatial + 2) and 1 <= spatial <= 3
    fits = fits and all(len(numbers[name]) == spatial for name in low)
    fits = fits and all(least <= n < 1 << 20 for name, least in low.items() for n in numbers[name])
    if not fits or arguments["groups"] < 1 or 0 in weight.shape:
        raise CheckpointError(f"{target} has arguments that do not fit together.")
    kernel, sizes = list(weight.shape[2:]), list(given.shape[-spatial:])
    batch = given.shape[0] if given.dim() > spatial + 1 else 1
    if arguments["transposed"]:
        places = math.prod(sizes)
        across = math.prod(weight.shape[1:]) * arguments["groups"]
    else:
        rows = zip(
            sizes, kernel, numbers["stride"], numbers["padding"], numbers["dilation"], strict=True
        )
        places = math.prod(
            max(0, (size + 2 * pad - dilation * (length - 1) - 1) // stride + 1)
            for size, length, stride, pad, dilation in rows
        )
        across = math.prod(weight.shape[1:]) * arguments["groups"]
    return batch * places * across * weight.element_size()


def _repeated(value: Any, count: int) -> list[int]:
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


def _scales(target: str, arguments: Mapping[str, Any]) -> int:
    """What is scaled: by factors for which places in the image can be calculated."""
    scales = [v for n, v in arguments.items() if n.startswith("scale") and v is not None]
    scales = list(chain.from_iterable(v if isinstance(v, list) else [v] for v in scales))
    if not all(1e-3 <= scale <= 1e3 for scale in scales):
        raise CheckpointError(f"{target} scales by {scales}.")
    return 0


def _padding(target: str, arguments: Mapping[str, Any]) -> int:
    """What is padded with itself: by no negative number."""
    if any(pad < 0 for pad in _repeated(arguments["padding"], 1)):
        raise CheckpointError(f"{target} pads by {arguments['padding']}.")
    return 0


def _division(target: str, arguments: Mapping[str, Any]) -> int:
    """Integers are not divided towards zero: the processor fails at the least one by -1."""
    tensors = [arguments["self"], arguments["other"]]
    floats = any(
        value.is_floating_point() if isinstance(value, torch.Tensor) else isinstance(value, float)
        for value in tensors
    )
    if arguments.get("rounding_mode") == "trunc" and not floats:
        raise CheckpointError(f"{target} divides integers towards zero; use rounding_mode='floor'.")
    return 0


def _masks(target: str, arguments: Mapping[str, Any]) -> int:
    """A mask becomes the numbers of its places."""
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


def limit(weights: Sequence[torch.Tensor]) -> int:
    """Return how much a program with these weights may take for one observation, in bytes."""
    return MOST_BYTES + 4 * sum(weight.nbytes for weight in weights)
