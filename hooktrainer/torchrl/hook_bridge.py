"""How the hooks of ``torchrl.trainers`` get into a trainer's registry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..collect.adapt import waits_for_processes
from ..loop.bridge import Bridge, HookHandle
from ..loop.dispatch import Adapter
from ..loop.hook_points import HookPoint
from . import stages
from .loss_parts import LossPart, has_value_estimator
from .processes import CollectorProcesses, only_cleans_up, send_to

if TYPE_CHECKING:
    from ..loop.cadence import Every
    from ..loop.loop import Loop


class TorchRLBridge(Bridge):
    """Serves hooks, steppers and stages of ``torchrl.trainers``; see `hooktrainer.loop.bridge`.

    Args:
        trainer: The trainer whose registry it serves.

    Attributes:
        stages: TorchRL's stages beside the ten points.
    """

    stages: Mapping[str, HookPoint] = stages.STAGES

    def __init__(self, trainer: Loop) -> None:
        self._trainer = trainer

    def place(
        self,
        stage: HookPoint,
        op: Callable[..., Any],
        kwargs: dict[str, Any],
        priority: float,
        every: Every | None,
    ) -> list[HookHandle]:
        """Register an op of one of TorchRL's stages where it belongs."""
        return stages.place(self._trainer, stage, op, kwargs, priority, every)

    def op(self, point: HookPoint, op: Callable[..., Any]) -> Callable[..., Any]:
        """What is called at one of the ten points for one of TorchRL's hooks."""
        if point == "optimizer" and _is(op, "OptimizerHook"):
            entries = self._trainer.registry.points[point].entries
            return _InOrder(op, sum(_is(entry.owner, "OptimizerHook") for entry in entries))
        hook = getattr(op, "__self__", None)
        stores = point == "batch_process" and _is(hook, "ReplayBufferTrainer")
        if stores and self._trainer.source.replay_buffer is hook.replay_buffer:  # type: ignore[union-attr]
            return _AlreadyStored(op)
        if _is(op, "UpdateWeights"):
            return _UpdateWeights(op, self._trainer)
        return op

    def module(self, name: str, module: Any) -> None:
        """Let a stepper take the steps, in place of the hook that ``Trainer(optimizer=)`` made.

        The optimizer goes on being saved as ``optimizer``, as TorchRL saves it.
        """
        if _is(module, "OptimizationStepper"):
            registry = self._trainer.registry
            given = getattr(self._trainer, "optimizer", None)
            own = None if given is None else registry.modules.get("optimizer")
            for entry in [e for e in registry.entries() if own is not None and e.owner is own]:
                registry.remove(entry)
            self._trainer.register_op("optimizer", _Stepper(module.step, self._trainer))

    def part(self, thing: Any) -> Any:
        """What holds the state of a hook, the loss module or the collector."""
        if _is(thing, "TargetNetUpdaterHook"):
            return _UpdaterCount(thing)
        if thing is self._trainer.source and waits_for_processes(thing):
            return CollectorProcesses(thing, self._trainer.control)
        if has_value_estimator(thing):
            return LossPart(thing)
        return thing

    def send(self, collector: Any, send: Callable[[], None]) -> None:
        """Send a collector something; processes that a signal may have ended are not waited for."""
        send_to(collector, self._trainer.control, send)

    def only_cleans_up(self, handler: Any) -> bool:
        """Whether a signal's handler is that of TorchRL's memory-mapped storages."""
        return only_cleans_up(handler)


class _InOrder(Adapter):
    """Passes an optimizer hook its place among those of its kind, as TorchRL's trainer does."""

    def __init__(self, func: Callable[..., Any], place: int) -> None:
        super().__init__(func)
        self._place = place

    def __call__(
        self, losses: Any, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> Any:
        return self.func(losses, clip_grad_norm, clip_norm, self._place)


class _AlreadyStored(Adapter):
    """Leaves out the storing of a batch that the collector has stored itself."""

    def __call__(self, batch: Any) -> None:
        pass


class _UpdateWeights(Adapter):
    """Updates the weights of a collector while it can be reached."""

    def __init__(self, func: Callable[..., Any], trainer: Loop) -> None:
        super().__init__(func)
        self._trainer = trainer

    def __call__(self) -> None:
        send_to(getattr(self.func, "collector", None), self._trainer.control, self.func)


class _Stepper(Adapter):
    """Takes an optimizer step as TorchRL's trainer has its steppers take it."""

    computes_loss = True

    def __init__(self, func: Callable[..., Any], trainer: Loop) -> None:
        super().__init__(func)
        self._trainer = trainer

    def __call__(self, sub_batch: Any, *_: Any) -> Any:
        return self.func(self._trainer, sub_batch)


class _UpdaterCount:
    """The state of TorchRL's `TargetNetUpdaterHook`: how often its updater was stepped."""

    def __init__(self, hook: Any) -> None:
        self._updater = hook.target_params_updater

    def state_dict(self) -> dict[str, Any]:
        """Return the count, if the updater counts; the parameters are the loss's."""
        counter = getattr(self._updater, "counter", None)
        return {} if counter is None else {"counter": counter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count."""
        if "counter" in state_dict:
            self._updater.counter = state_dict["counter"]


def _is(thing: Any, name: str) -> bool:
    """Whether ``thing`` is of a class of ``torchrl.trainers``; if that is not imported, it is not.

    It takes seconds to import.
    """
    theirs = sys.modules.get("torchrl.trainers.trainers")
    kind = getattr(theirs, name, None)
    return kind is not None and isinstance(thing, kind)
