"""Hooks that react to a metric: `EarlyStopping` ends the run, `SaveOnBest` saves."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from tensordict import TensorDictBase

from ..base.checks import check_choice, check_count, check_rate
from ..loop.hook import LATE
from ..loop.stateful import differing
from .averaging import AveragingHook


class _OnMetric(AveragingHook):
    """Base class of hooks with the best value of a metric, whose state is of that metric alone."""

    at = "post_steps_log"
    priority = LATE  # after the hooks that log the metric
    _watched: ClassVar[Sequence[str]]  # the attributes with its name and the mode

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, and what it is of."""
        return super().state_dict() | {name: getattr(self, name) for name in self._watched}

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List whether the state is of another metric or mode; TorchRL's has neither."""
        return differing({n: getattr(self, n) for n in self._watched if n in saved}, saved)


@dataclass(eq=False, repr=False)
class EarlyStopping(_OnMetric):
    """Stops training when a metric has not improved for ``patience`` frames.

    It does nothing before the metric is first logged or during the first ``wait_for`` frames. A run
    that it stopped stops again when resumed, unless with more patience.

    Args:
        monitor: Name of the metric.
        mode: ``"max"`` if larger is better, ``"min"`` if smaller is.
        min_delta: Least gain that counts as an improvement.
        patience: Frames without an improvement after which training stops.
        wait_for: Frames at the start of the run in which the metric is ignored.
        check_finite: Whether a value that is NaN or infinite stops training.
    """

    saved_attributes = ("best_score", "stop_reason", "_last_improvement_frame")  # as TorchRL's
    _watched = ("monitor", "mode")

    _: KW_ONLY
    monitor: str = "r_evaluation"
    mode: Literal["min", "max"] = "max"
    min_delta: float = 0.0
    patience: int = 100_000
    wait_for: int = 1_000_000
    check_finite: bool = True

    def __post_init__(self) -> None:
        check_choice("EarlyStopping: mode", self.mode, ("min", "max"))
        check_rate("EarlyStopping: min_delta", self.min_delta)
        check_count("patience", self.patience, least=0)
        check_count("wait_for", self.wait_for, least=0)
        self.best_score: float | None = None
        self.stop_reason: str | None = None
        self._last_improvement_frame: int | None = None
        self._warned = False

    def __call__(self, batch: TensorDictBase | None) -> None:
        """Check the metric, and request a stop if due."""
        trainer = self.trainer
        frames, unit = trainer.progress.frames, trainer.source.unit
        if frames < self.wait_for:
            return
        score = self._latest(self.monitor)
        if score is None:
            if not self._warned and frames >= self.wait_for + self.patience:
                self._warned = True
                warnings.warn(
                    f"EarlyStopping: {self.monitor!r} was not logged in the first {frames} {unit}; "
                    f"logged were {', '.join(trainer.metrics.all_latest()) or 'no metrics'}.",
                    stacklevel=2,
                )
        elif self.check_finite and not math.isfinite(score):
            self._stop(f"{self.monitor} is non-finite: {score}")
        elif self._improves(score):
            self.best_score, self._last_improvement_frame = score, frames
        elif (since := frames - (self._last_improvement_frame or 0)) >= self.patience:
            best = "NaN" if self.best_score is None else f"{self.best_score:.6g}"
            self._stop(f"{self.monitor} did not improve on {best} for {since} {unit}")

    def _improves(self, score: float) -> bool:
        if self.best_score is None:
            return not math.isnan(score)
        return _gain(score, self.best_score, self.mode) > self.min_delta

    def _stop(self, reason: str) -> None:
        self.stop_reason = reason
        self.trainer.request_stop(reason)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value; stop again if the run was stopped for a reason that holds."""
        super().load_state_dict(state_dict)
        if self.stop_reason is not None and self.is_registered:
            self.stop_reason = None
            self(None)


# -- `SaveOnBest`.


def _gain(value: float, best: float, mode: str) -> float:
    return value - best if mode == "max" else best - value


@dataclass(eq=False, repr=False)
class SaveOnBest(_OnMetric):
    """Requests a checkpoint at the end of each batch in which a metric reached a new best.

    To keep these checkpoints, give the `CheckpointManager` a `Best` of the same metric.

    Args:
        metric: Name of the metric.
        mode: ``"max"`` if larger is better, ``"min"`` if smaller is.
    """

    saved_attributes = ("best",)
    _watched = ("metric", "mode")

    metric: str = "eval/return"
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        check_choice("SaveOnBest: mode", self.mode, ("min", "max"))
        self.best: float | None = None

    def __call__(self, batch: TensorDictBase) -> None:
        """Check the metric, and request a checkpoint at a new best."""
        value = self._latest(self.metric)
        if value is None or math.isnan(value):
            return
        if self.best is None or _gain(value, self.best, self.mode) > 0:
            self.best = value
            self.trainer.request_save()
