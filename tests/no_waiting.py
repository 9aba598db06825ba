"""Modes that see what would wait for an accelerator, where there is none."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hooktrainer

# What a GPU is waited for to know: numbers, and shapes that depend on numbers.
_READS = {
    *("_local_scalar_dense", "is_nonzero", "equal", "item"),
    *("nonzero", "masked_select", "unique", "_unique2", "unique_consecutive", "unique_dim"),
    *("bincount", "repeat_interleave", "multinomial"),
}
_PACKAGE = Path(hooktrainer.__file__).parent


def _waits_for(func: Any, args: Any, kwargs: Any) -> str | None:
    """What an operation would wait for; `None` for nothing."""
    name = func.name().split("::")[1].split(".")[0]
    if name in _READS:
        return f"{name} reads"
    if name in ("index", "index_put", "index_put_"):
        for index in args[1]:
            if index is not None and index.dtype is torch.bool:
                return f"{name} by a boolean mask counts"
            if index is not None and index.device != args[0].device:
                return f"{name} copies its index from {index.device} to {args[0].device}"
    if name in ("_to_copy", "copy_"):
        source = args[0] if name == "_to_copy" else args[1]
        target = kwargs.get("device") or source.device if name == "_to_copy" else args[0].device
        is_async = kwargs.get("non_blocking") or (name == "copy_" and any(args[2:]))
        # Reading a tensor on the CPU waits for it.
        if source.device.type != target.type and (target.type == "cpu" or not is_async):
            return f"{name} copies from {source.device.type} to {target.type}"
    return None


class NoWaiting(TorchDispatchMode):
    """Refuses to read what tensors hold, to index by what they hold, and to leave their device.

    On a CPU ``.item()`` and so on are dispatched as on a GPU; copies between devices show when the
    tensors are on the device ``meta``, from which nothing can be read at all.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waits = _waits_for(func, args, kwargs or {})
        assert waits is None, f"{waits}: {func} waits for the device"
        return func(*args, **(kwargs or {}))


class Waits(TorchDispatchMode):
    """Counts what would wait for an accelerator, and goes on as if there had been an answer.

    The accelerator is the device ``meta``: shapes, dtypes and devices of everything that a training
    iteration does are those that it would have on a GPU, and there is nothing to compute.
    Compile with `hooktrainer.graphs.compiling.BACKEND` set to `None`.

    Attributes:
        is_counting: Whether what happens now is counted.
        found: What waited, and from which lines of the package, with how often it did.
        operations: Number of operations requested meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.found: Counter[str] = Counter()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        on_device = any(isinstance(x, torch.Tensor) and x.is_meta for x in _flat(args))
        target = kwargs.get("device")
        if not on_device and (target is None or target.type != "meta"):
            return func(*args, **kwargs)
        if self.is_counting:
            self.operations += 1
            if (waits := _waits_for(func, args, kwargs)) is not None:
                self.found[f"{waits}, {_where()}"] += 1
        return self._answer(func, args, kwargs)

    def _answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        if name == "_local_scalar_dense":
            kind = args[0].dtype
            return kind is torch.bool or (0.0 if kind.is_floating_point else 0)
        if name == "_to_copy" and kwargs.get("device", args[0].device).type == "cpu":
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name == "copy_" and args[0].device != args[1].device:
            return args[0]
        if name == "_fused_adam_":  # not known on meta if the learning rate is a tensor
            return None
        return func(*args, **kwargs)


def _flat(args: Any) -> Iterator[Any]:
    for value in args:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _where() -> str:
    lines = [
        f"{Path(frame.filename).relative_to(_PACKAGE)}:{frame.lineno}"
        for frame in reversed(traceback.extract_stack())
        if Path(frame.filename).is_relative_to(_PACKAGE)
    ]
    return f"at {' < '.join(lines[:3])}"


@contextmanager
def counting_waits() -> Iterator[Waits]:
    """A `Waits`, with optimizers that think that ``meta`` is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("adam", "adamw", "optimizer"):
            patch.setattr(
                sys.modules[f"torch.optim.{module}"],
                "_get_fused_kernels_supported_devices",
                lambda: ["cpu", "cuda", "meta"],
                raising=False,
            )
        with Waits() as mode:
            yield mode


class OnDevice(torch.Tensor):
    """Says that it is not on the CPU, and is: what is done for a GPU is done with its numbers."""

    is_cpu = False

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.detach().clone()
