"""Metrics of a run, reported as means over log windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


class TensorTotal:
    """A `Total` in a tensor, which stays on its device until the window closes."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Samples:
    """Several values of a metric; each counts as one in the window's mean.

    Args:
        values: Any shape.
        where: Which values count, bool of that shape; ``None`` for all. On an accelerator their
            number is not read before the window closes.
    """

    def __init__(self, values: torch.Tensor, where: torch.Tensor | None = None) -> None:
        if where is not None and where.is_cpu:
            values, where = values[where], None
        self.values = values
        self.where = where


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
        self._renamed: dict[str, str] = {}

    def log(self, values: Mapping[str, Any]) -> None:
        """Add one value to each of several metrics."""
        for name, value in values.items():
            if name != "log_pbar":
                self._add(name, value)
        if shown := values.get("log_pbar"):
            names = shown if isinstance(shown, (list, tuple)) else values
            renamed = self._renamed
            self.pbar_names.update((renamed.get(n, n), None) for n in names if n != "log_pbar")

    def add(self, name: str, value: float) -> None:
        """Add one number to a metric; the fast path for code that runs at every optimizer step."""
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = _Series()
        series.add(value)

    def log_losses(self, losses: TensorDictBase) -> None:
        """Add the losses of a step: ``loss_<x>`` as ``loss/<x>``, others as ``train/<key>``."""
        for key, value in losses.items():
            series = self._losses.get(key)
            if series is None:
                if not isinstance(key, str):
                    raise TypeError(f"loss key {key!r} is not a string.")
                name = f"loss/{key[5:]}" if key.startswith("loss_") else f"train/{key}"
                series = self._new("loss/loss" if key == "loss" else name)
                self._losses[key] = series
            if value.ndim:
                value = value.float().mean()
            # Reading a scalar on the CPU waits for nothing and costs a tenth of keeping it. On an
            # accelerator it stays there, as a copy: a CUDA graph overwrites its outputs.
            series.add(value.item() if value.is_cpu else value.detach().clone())

    def latest(self, name: str) -> float | None:
        """Return the last logged value of ``name``; ``None`` if there is none."""
        series = self._series.get(name)
        return None if series is None else series.latest()

    def shown(self, name: str) -> float | None:
        """Return the latest value; of one on an accelerator the reported one, to avoid waiting."""
        series = self._series.get(name)
        last = None if series is None else series.last
        is_away = isinstance(last, torch.Tensor) and not last.is_cpu
        return self.reported.get(name) if is_away else self.latest(name)

    def all_latest(self) -> dict[str, float]:
        """Return the last logged value of every metric."""
        latest = {name: series.latest() for name, series in self._series.items()}
        return {name: value for name, value in latest.items() if value is not None}

    def close_window(self) -> dict[str, float]:
        """End the window and return its values.

        Returns:
            Metric name to the mean of the window's values, or to the last one for `Latest`.
        """
        open_series = {name: s for name, s in self._series.items() if s.pending or s.count}
        values = {name: series.close() for name, series in open_series.items()}
        values = {name: value for name, value in values.items() if value.count}
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
        self._series = {n: _Series.from_state_dict(s) for n, s in state_dict["series"].items()}
        self._losses = {}
        self.reported = dict(state_dict["reported"])
        self.pbar_names = dict.fromkeys(state_dict["pbar_names"])

    def _add(self, name: str, value: Any) -> None:
        series = self._series.get(name) or self._new(name)
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise TypeError(
                    f"metric {name!r} has shape {tuple(value.shape)}; log a scalar: .mean()."
                )
            series.add(value.detach().reshape(()).clone())  # it may be a view, or a buffer
        elif isinstance(value, Samples):
            series.add_many(value.values.detach(), value.where)
        elif isinstance(value, Latest):
            series.set(float(value))
            series.is_total = isinstance(value, Total)
        elif isinstance(value, TensorTotal):
            series.set(value.value.detach().clone())
            series.is_total = True
        elif isinstance(value, (Real, np.bool_)):
            series.add(float(value))
        elif isinstance(value, np.ndarray) and value.size == 1:
            series.add(float(value.item()))
        else:
            raise TypeError(
                f"metric {name!r} is {value!r:.80}, a {type(value).__name__}: log a number."
            )

    def _new(self, name: str) -> _Series:
        valid = self._renamed.get(name) or as_name(name)
        if valid != name:
            self._renamed[name] = valid
        return self._series.setdefault(valid, _Series())


class _Series:
    """The values of one metric in the open window."""

    __slots__ = ("count", "is_chosen", "is_total", "last", "pending", "sum")

    def __init__(self) -> None:
        self.sum: torch.Tensor | float = 0.0
        self.count: torch.Tensor | int = 0
        self.pending: list[torch.Tensor | float] = []
        self.last: torch.Tensor | float | None = None
        self.is_total = False
        self.is_chosen = False  # on a device, where there may have been none yet

    def latest(self) -> float | None:
        value = None if self.last is None else float(self.last)
        return None if self.is_chosen and value is not None and math.isnan(value) else value

    def add(self, value: torch.Tensor | float) -> None:
        self.last = value
        self.pending.append(value)
        if len(self.pending) >= _CHUNK:
            self._add_up()

    def add_many(self, values: torch.Tensor, where: torch.Tensor | None = None) -> None:
        values = values.reshape(-1)
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

    def set(self, value: torch.Tensor | float) -> None:
        self.last = value
        self.pending = [value]

    def close(self) -> WindowValue:
        self._add_up()
        value = WindowValue(float(self.sum), int(self.count), self.is_total)
        self.sum, self.count = 0.0, 0
        return value

    def _add_up(self) -> None:
        pending, self.pending = self.pending, []
        self.count = self.count + len(pending)
        # Most are floats, which a look at the class tells in a tenth of the time of isinstance.
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
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> _Series:
        series = cls()
        series.sum, series.count, series.last = state["sum"], state["count"], state["last"]
        series.is_total = state["is_total"]
        pending = state["pending"]
        series.pending = list(pending.unbind() if isinstance(pending, torch.Tensor) else pending)
        return series


def _wide(values: torch.Tensor) -> torch.dtype:
    """Return the dtype of sums; MPS has no float64."""
    return torch.float32 if values.device.type == "mps" else torch.float64
