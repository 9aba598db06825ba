"""Metrics of a run, reported as means over log windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from ..base.words import as_name

_CHUNK = 256  # values kept before they are added up; bounds the memory of a long window


class Latest(float):
    """A metric whose window reports its last value instead of the mean, such as a counter.

    Examples:
        >>> {"n_frames": Latest(2048)}
        {'n_frames': 2048.0}
    """


class Total(Latest):
    """A `Latest` count that is summed over the processes of a run."""


@dataclass(frozen=True)
class TensorTotal:
    """A `Total` in a tensor, which stays on its device until the window closes."""

    value: torch.Tensor


@dataclass(frozen=True)
class Samples:
    """Several values of a metric; each counts as one in the window's mean.

    Args:
        values: Any shape.
        where: Which values count, bool of that shape; ``None`` for all. On an accelerator their
            number is not read before the window closes.
    """

    values: torch.Tensor
    where: torch.Tensor | None = None


@dataclass(frozen=True)
class WindowValue:
    """The sum and count of a metric in a log window, and whether it is a `Total`."""

    sum: float
    count: int
    is_total: bool = False

    def __add__(self, other: WindowValue) -> WindowValue:
        """Combine with the value from another process."""
        count = self.count if self.is_total else self.count + other.count
        return WindowValue(self.sum + other.sum, count, self.is_total)


class Metrics:
    """The metrics of the current log window.

    Values on an accelerator stay there until the window closes, so logging never waits for it.
    Memory does not grow with the length of the run.

    Attributes:
        reported: The last reported value of every metric.
        pbar_names: Metrics of the progress bar, in order of first appearance.
        combine: Replaces a window before it is reported, for several processes; ``None`` for one.
    """

    def __init__(self) -> None:
        self.combine: Callable[[dict[str, WindowValue]], dict[str, WindowValue]] | None = None
        self.reported: dict[str, float] = {}
        self.pbar_names: dict[str, None] = {}
        self._series: dict[str, _Series] = {}
        self._losses: dict[str, _Series] = {}

    def log(self, values: Mapping[str, Any]) -> None:
        """Add one value to each of several metrics."""
        for name, value in values.items():
            if name == "log_pbar":
                continue
            series = self._series.get(name) or self._series.setdefault(as_name(name), _Series())
            if value.__class__ is float:  # as at every optimizer step
                series.add(value)
            elif isinstance(value, torch.Tensor):
                if value.numel() != 1:
                    raise TypeError(
                        f"metric {name!r} has shape {tuple(value.shape)}; log a scalar: .mean()."
                    )
                series.add(value.detach().reshape(()).clone())  # it may be a view, or a buffer
            elif isinstance(value, Samples):
                series.add_many(value.values.detach(), value.where)
            elif isinstance(value, (Latest, TensorTotal)):
                last = float(value) if isinstance(value, Latest) else value.value.detach().clone()
                series.last, series.pending = last, [last]
                series.is_total = isinstance(value, (Total, TensorTotal))
            elif isinstance(value, (Real, np.bool_)):
                series.add(float(value))
            elif isinstance(value, np.ndarray) and value.size == 1:
                series.add(float(value.item()))
            else:
                raise TypeError(
                    f"metric {name!r} is {value!r:.80}, a {type(value).__name__}: log a number."
                )
        if shown := values.get("log_pbar"):
            names = shown if isinstance(shown, (list, tuple)) else values
            self.pbar_names |= {as_name(name): None for name in names if name != "log_pbar"}

    def log_losses(self, losses: TensorDictBase) -> None:
        """Add the losses of a step: ``loss_<x>`` as ``loss/<x>``, others as ``train/<key>``."""
        for key, value in losses.items():
            series = self._losses.get(key)
            if series is None:
                name = metric_of_loss(key)
                series = self._losses[key] = self._series.setdefault(name, _Series())
            if value.ndim:
                value = value.float().mean()
            # Reading a scalar on the CPU waits for nothing and costs a tenth of keeping it. On an
            # accelerator it stays there, as a copy: a CUDA graph overwrites its outputs.
            series.add(value.item() if value.is_cpu else value.detach().clone())

    def latest(self, name: str, *, wait: bool = True) -> float | None:
        """Return the last logged value of ``name``; ``None`` if there is none.

        Without ``wait``, the last reported one of a metric on an accelerator.
        """
        series = self._series.get(name)
        if series is None or series.last is None:
            return None
        if not wait and isinstance(series.last, torch.Tensor) and not series.last.is_cpu:
            return self.reported.get(name)
        value = float(series.last)
        return None if series.is_chosen and math.isnan(value) else value

    def all_latest(self, chosen: Callable[[str], bool] = lambda name: True) -> dict[str, float]:
        """Return the last logged value of every metric, or of those of ``chosen`` names."""
        latest = {name: self.latest(name) for name in self._series if chosen(name)}
        return {name: value for name, value in latest.items() if value is not None}

    def close_window(self) -> dict[str, float]:
        """End the window and return its values.

        Returns:
            Metric name to the mean of the window's values, or to the last one for `Latest`.
        """
        values: dict[str, WindowValue] = {}
        for name, series in self._series.items():
            series.add_up()
            if count := int(series.count):
                values[name] = WindowValue(float(series.sum), count, series.is_total)
            series.sum, series.count = 0.0, 0
        if self.combine is not None:
            values = self.combine(values)
        window = {name: value.sum / value.count for name, value in values.items()}
        self.reported.update(window)
        return window

    def state_dict(self) -> dict[str, Any]:
        """Return the open window and the values reported so far."""
        return {
            "series": {name: series.state_dict() for name, series in self._series.items()},
            "reported": dict(self.reported),
            "pbar_names": list(self.pbar_names),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._series = {}
        for name, saved in state_dict["series"].items():
            pending = saved["pending"]  # tensors of one kind are stacked
            pending = list(pending.unbind() if isinstance(pending, torch.Tensor) else pending)
            self._series[name] = _Series(**{**saved, "pending": pending})
        self._losses = {}
        self.reported = dict(state_dict["reported"])
        self.pbar_names = dict.fromkeys(state_dict["pbar_names"])


def metric_of_loss(key: Any) -> str:
    """The metric of an entry of the losses: ``loss/<x>`` of ``loss_<x>``, else ``train/<key>``."""
    if not isinstance(key, str):
        raise TypeError(f"loss key {key!r} is not a string.")
    name = f"loss/{key[5:]}" if key.startswith("loss_") else f"train/{key}"
    return as_name("loss/loss" if key == "loss" else name)


@dataclass(eq=False, slots=True)
class _Series:
    """The values of one metric in the open window."""

    sum: torch.Tensor | float = 0.0
    count: torch.Tensor | int = 0
    pending: list[torch.Tensor | float] = field(default_factory=list)
    last: torch.Tensor | float | None = None
    is_total: bool = False
    is_chosen: bool = False  # on a device, where there may have been none yet

    def add(self, value: torch.Tensor | float) -> None:
        self.last = value
        self.pending.append(value)
        if len(self.pending) >= _CHUNK:
            self.add_up()

    def add_many(self, values: torch.Tensor, where: torch.Tensor | None) -> None:
        if where is not None and where.is_cpu:
            values, where = values[where], None
        values = values.reshape(-1)
        if not len(values):
            return
        if where is None:
            self.last = values[-1].clone()  # not a view, which would keep all of them
            self.sum = self.sum + values.sum(dtype=_wide(values))
            self.count = self.count + values.numel()
            return
        where = where.reshape(-1)
        places = torch.arange(len(where), device=where.device)
        latest = values.take(places.where(where, 0).max())
        before = float("nan") if self.last is None else self.last
        self.last = torch.where(where.any(), latest, before)
        self.sum = self.sum + values.where(where, 0).sum(dtype=_wide(values))
        self.count, self.is_chosen = self.count + where.sum(), True

    def add_up(self) -> None:
        pending, self.pending = self.pending, []
        self.count = self.count + len(pending)
        # Most are floats. Comparing the class takes a tenth of the time of isinstance.
        numbers = [value for value in pending if value.__class__ is float]
        if len(numbers) == len(pending):
            self.sum = self.sum + sum(numbers)
            return
        tensors = [v for v in pending if isinstance(v, torch.Tensor)]
        self.sum = self.sum + sum(v for v in pending if not isinstance(v, torch.Tensor))
        if tensors:
            self.sum = self.sum + torch.stack(tensors).sum(dtype=_wide(tensors[0]))

    def state_dict(self) -> dict[str, Any]:
        pending = [value for value in self.pending if isinstance(value, torch.Tensor)]
        kinds = {(value.dtype, value.device) for value in pending}
        is_uniform = len(kinds) == 1 and len(pending) == len(self.pending)
        return {
            "sum": self.sum,
            "count": int(self.count),
            "pending": torch.stack(pending) if is_uniform else list(self.pending),
            "last": self.last,
            "is_total": self.is_total,
            "is_chosen": self.is_chosen,
        }


def _wide(values: torch.Tensor) -> torch.dtype:
    """Return the dtype of sums; MPS has no float64."""
    return torch.float32 if values.device.type == "mps" else torch.float64
