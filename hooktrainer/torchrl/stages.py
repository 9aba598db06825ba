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


# The methods of `_Stage` that serve a stage, each with its point and priority. What ends an epoch
# comes before what begins the next.
_METHODS: dict[str, tuple[tuple[HookPointName, str, float], ...]] = {
    "pre_epoch_log": (("process_optim_batch", "begin_epoch", EARLY + 2),),
    "pre_epoch": (("process_optim_batch", "begin_epoch", EARLY + 1),),
    "post_epoch_log": (
        ("process_optim_batch", "follow_epoch", EARLY + 4),
        ("post_steps", "end_epoch", EARLY + 4),
    ),
    "post_epoch": (
        ("process_optim_batch", "follow_epoch", EARLY + 3),
        ("post_steps", "end_epoch", EARLY + 3),
    ),
    "process_loss": (
        ("post_loss", "remember", LATE),
        ("optimizer", "process_loss", EARLY + 1),
    ),
    "post_optim_complete_log": (
        ("optimizer", "add_losses", LAST),
        ("post_steps", "log_means", EARLY),
    ),
}


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
    placed = _Stage(call, trainer, stage)
    if stage not in _METHODS:
        return [trainer.registry.add_run_op(placed)]
    within = atan(priority) / pi  # keeps the order, within a half on both sides
    return [
        trainer.register_op(point, Calls(call, getattr(placed, method)), priority=rank + within)
        for point, method, rank in _METHODS[stage]
    ]


class Calls(Adapter):
    """Calls something else in place of the op, whose name and state it has."""

    def __init__(self, func: Callable[..., Any], call: Callable[..., Any]) -> None:
        super().__init__(func)
        self._call = call

    def __call__(self, *args: Any) -> Any:
        """Call it."""
        return self._call(*args)


class _Stage(Adapter):
    """Calls its op when its stage is reached."""

    def __init__(self, func: Callable[..., Any], trainer: Loop, stage: HookPoint) -> None:
        super().__init__(func)
        self._trainer = trainer
        self._stage = stage
        self._epoch: tuple[int, int] | None = None
        self._batch: TensorDictBase | None = None
        self._sums: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_epoch": None, "_batch": None}

    def on_train_start(self, trainer: Loop) -> None:
        if self._stage == "setup":
            self.func()

    def on_train_end(self, trainer: Loop) -> None:
        if self._stage == "shutdown":
            self.func()

    def _begins(self) -> bool:
        """Return whether this is the first step of an epoch."""
        epoch = self._trainer.progress.batches, self._trainer.epoch
        before, self._epoch = self._epoch, epoch
        return epoch != before

    def begin_epoch(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch, or the result of a ``pre_epoch`` op for this epoch."""
        if self._begins():
            out = self._log(batch)
            self._batch = out if self._stage == "pre_epoch" else None
        return batch if self._batch is None else self._batch

    def follow_epoch(self, batch: TensorDictBase) -> None:
        """Call the op when the next epoch begins."""
        if self._begins():
            self.end_epoch()
            self._batch = batch

    def end_epoch(self) -> None:
        """Call the op if an epoch has begun."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self._log(*([batch] * len(self._stage.receives)))

    def remember(self, sub_batch: TensorDictBase) -> None:
        self._batch = sub_batch

    def process_loss(self, losses: TensorDictBase, *_: Any) -> Any:
        sub_batch, self._batch = self._batch, None
        return self.func(sub_batch, losses)

    def add_losses(self, losses: TensorDictBase, *_: Any) -> None:
        for key, loss in losses.items():
            value = loss.detach().clone()  # a CUDA graph overwrites its outputs
            self._sums[key] = self._sums[key] + value if key in self._sums else value
            self._counts[key] = self._counts.get(key, 0) + 1

    def log_means(self) -> None:
        """Log the result of the op, if a step was made."""
        if self._sums:
            means = TensorDict({k: v / self._counts[k] for k, v in self._sums.items()}, [])
            self._sums, self._counts = {}, {}
            self._log(self._trainer.optim_count, means)

    def _log(self, *args: Any) -> Any:
        """Call the op; log what it returns if that is what its stage is for."""
        out = self.func(*args)
        if out is not None and self._stage.kind == "log":
            if not isinstance(out, dict):
                raise HookReturnError(
                    f"returned {out!r:.80} of type {type(out).__name__}; {self._stage!s} takes "
                    f"{self._stage.returns}."
                )
            self._trainer.log(out)
        return out
