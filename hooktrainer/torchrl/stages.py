"""TorchRL's stages in addition to the ten points, each mapped to points.

========================== =======================================================================
``setup``, ``shutdown``    `on_train_start` and `on_train_end`
``pre_epoch_log``,         before the first sub-batch of an epoch is taken
``pre_epoch``
``post_epoch_log``,        before the first sub-batch of the next epoch is taken; of the last epoch,
``post_epoch``             at ``post_steps``
``process_loss``           at ``optimizer``, before everything else there
``post_optim_complete_log`` at ``post_steps``, with the means of what ``optimizer`` returned
========================== =======================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import atan, pi
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict, TensorDictBase

from ..errors import ConfigError, HookReturnError
from ..loop.dispatch import Adapter
from ..loop.hook import EARLY, LAST, LATE
from ..loop.hook_points import HookPoint, HookPointName

if TYPE_CHECKING:
    from ..loop.loop import Loop
    from ..loop.registry import HookHandle

STAGES: dict[str, HookPoint] = {
    stage: stage
    for stage in (
        HookPoint("setup", "action", (), "lazy initialization"),
        HookPoint("shutdown", "action", (), "a last evaluation"),
        HookPoint("pre_epoch_log", "log", ("batch",), "metrics of an epoch"),
        HookPoint("pre_epoch", "transform", ("batch",), "advantages"),
        HookPoint("post_epoch_log", "log", ("batch",), "metrics of an epoch"),
        HookPoint("post_epoch", "action", (), "weight updates"),
        HookPoint("process_loss", "transform", ("sub_batch", "losses"), "scaling"),
        HookPoint("post_optim_complete_log", "log", ("optim_steps", "losses"), "mean losses"),
    )
}
"""The stages by name."""


def place(
    trainer: Loop,
    stage: HookPoint,
    op: Callable[..., Any],
    kwargs: dict[str, Any],
    priority: float,
    every: Any,
) -> list[HookHandle]:
    """Register ``op`` at the points of ``stage``; among ops of a stage, higher priority runs first.

    Raises:
        ConfigError: If a cadence is given, since only the ten points check cadences.
    """
    if every is not None:
        raise ConfigError(
            f"every={every!r}: {stage!s} is a stage of torchrl's, which takes no cadence; register "
            "the hook at one of the ten points."
        )
    call = functools.partial(op, **kwargs) if kwargs else op
    within = atan(priority) / pi  # keeps the order, within a half on both sides

    def at(point: HookPointName, adapter: Callable[..., Any], rank: float) -> HookHandle:
        return trainer.register_op(point, adapter, priority=rank)

    if stage in ("setup", "shutdown"):
        return [trainer.registry.add_run_op(_RunOp(call, stage))]
    if stage in _BEGINNINGS:
        begin = _EpochBegins(trainer, stage, call)
        return [at("process_optim_batch", begin, EARLY + _BEGINNINGS[stage] + within)]
    if stage in _ENDS:
        end, rank = _EpochEnds(trainer, stage, call), EARLY + _ENDS[stage] + within
        return [
            at("process_optim_batch", end, rank),
            at("post_steps", _Method(call, end.end), rank),
        ]
    if stage == "process_loss":
        process = _ProcessLoss(call)
        return [
            at("post_loss", _Method(call, process.remember), LATE),
            at("optimizer", process, EARLY + 1 + within),
        ]
    means = _MeanLosses(trainer, call)
    return [
        at("optimizer", means, LAST),
        at("post_steps", _Method(call, means.log), EARLY + within),
    ]


# Behind what ends the epoch before.
_BEGINNINGS = {"pre_epoch_log": 2, "pre_epoch": 1}
_ENDS = {"post_epoch_log": 4, "post_epoch": 3}


class _Method(Adapter):
    """Calls a method of an adapter at a second point."""

    def __init__(self, func: Callable[..., Any], method: Callable[..., Any]) -> None:
        super().__init__(func)
        self._method = method

    def __call__(self, *args: Any) -> Any:
        return self._method(*args)


class _RunOp(Adapter):
    """An op of the stage ``setup`` or ``shutdown``."""

    def __init__(self, func: Callable[..., Any], stage: HookPoint) -> None:
        super().__init__(func)
        self._stage = stage

    def on_train_start(self, trainer: Loop) -> None:
        if self._stage == "setup":
            self.func()

    def on_train_end(self, trainer: Loop) -> None:
        if self._stage == "shutdown":
            self.func()


class _EpochOp(Adapter):
    """Detects at ``process_optim_batch`` that another epoch begins."""

    def __init__(self, trainer: Loop, stage: HookPoint, func: Callable[..., Any]) -> None:
        super().__init__(func)
        self._trainer = trainer
        self._stage = stage
        self._epoch: tuple[int, int] | None = None
        self._batch: TensorDictBase | None = None

    def begins(self) -> bool:
        """Return whether this is the first call in an epoch."""
        epoch = self._trainer.progress.batches, self._trainer.epoch
        before, self._epoch = self._epoch, epoch
        return epoch != before

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_epoch": None, "_batch": None}


class _EpochBegins(_EpochOp):
    """Calls its op at the first step of an epoch."""

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch, or the result of a ``pre_epoch`` op for this epoch."""
        if self.begins():
            out = self.func(batch)
            if self._stage.kind == "transform":
                self._batch = out
            else:
                _log(self._trainer, self._stage, out)
        return batch if self._batch is None else self._batch


class _EpochEnds(_EpochOp):
    """Calls its op after an epoch: when the next one begins, or at ``post_steps``."""

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        if self.begins():
            self.end()
            self._batch = batch
        return batch

    def end(self) -> None:
        """Call the op if an epoch has begun."""
        batch, self._batch = self._batch, None
        if batch is not None:
            _log(self._trainer, self._stage, self.func(*([batch] * len(self._stage.receives))))


class _ProcessLoss(Adapter):
    """At ``post_loss`` and ``optimizer``: passes its op the sub-batch and the losses."""

    _sub_batch: TensorDictBase | None = None

    def remember(self, sub_batch: TensorDictBase) -> None:
        self._sub_batch = sub_batch

    def __call__(self, losses: TensorDictBase, *_: Any) -> Any:
        sub_batch, self._sub_batch = self._sub_batch, None
        return self.func(sub_batch, losses)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sub_batch": None}


class _MeanLosses(Adapter):
    """At ``optimizer`` and ``post_steps``: passes its op the mean losses of a batch."""

    def __init__(self, trainer: Loop, func: Callable[..., Any]) -> None:
        super().__init__(func)
        self._trainer = trainer
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, losses: TensorDictBase, *_: Any) -> None:
        for key, loss in losses.items():
            value = loss.detach().clone()  # a CUDA graph overwrites its outputs
            self._sums[key] = self._sums[key] + value if key in self._sums else value
            self._counts[key] = self._counts.get(key, 0) + 1

    def log(self) -> None:
        """Log the result of the op, if a step was made."""
        if self._sums:
            means = TensorDict({k: v / self._counts[k] for k, v in self._sums.items()}, [])
            self._sums, self._counts = {}, {}
            stage = STAGES["post_optim_complete_log"]
            _log(self._trainer, stage, self.func(self._trainer.optim_count, means))


def _log(trainer: Loop, stage: HookPoint, out: Any) -> None:
    if out is None or stage.kind != "log":
        return
    if not isinstance(out, dict):
        raise HookReturnError(
            f"returned {out!r:.80} of type {type(out).__name__}; {stage!s} takes {stage.returns}."
        )
    trainer.log(out)
