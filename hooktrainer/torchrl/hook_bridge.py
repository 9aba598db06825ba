"""Adapts hooks of ``torchrl.trainers`` to a trainer's registry."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from math import atan, pi
from typing import TYPE_CHECKING, Any, Final

import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn

from ..collect.adapt import waits_for_processes
from ..errors import ConfigError
from ..loop.hook import EARLY, LAST, LATE
from ..loop.hook_points import HookPoint, HookPointName
from ..loop.metrics import Metrics
from ..loop.registry import Adapter, HookHandle
from ..loop.stateful import StatefulModule

if TYPE_CHECKING:
    from ..loop.cadence import Every, Progress
    from ..loop.control import Control
    from ..loop.loop import Loop
    from ..loop.registry import Registry


# -- TorchRL's stages in addition to the ten points, each mapped to points.


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


class _Stage(Adapter):
    """Calls its op when its stage is reached."""

    def __init__(self, func: Callable[..., Any], trainer: Loop, stage: HookPoint) -> None:
        super().__init__(func, self.idle)
        self._trainer = trainer
        self._stage = stage
        self._epoch: tuple[int, int] | None = None
        self._batch: TensorDictBase | None = None
        self._losses: dict[str, list[torch.Tensor]] = {}

    def idle(self) -> None:
        """Do nothing: ``setup`` and ``shutdown`` are called at the ends of the run."""

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
        for key, loss in losses.items():  # cloned, as a CUDA graph overwrites its outputs
            self._losses.setdefault(key, []).append(loss.detach().clone())

    def log_means(self) -> None:
        """Log the result of the op, if a step was made."""
        losses, self._losses = self._losses, {}
        if losses:
            means = {key: torch.stack(values).mean(0) for key, values in losses.items()}
            self._log(self._trainer.optim_count, TensorDict(means, []))

    def _log(self, *args: Any) -> Any:
        """Call the op; log what it returns if that is what its stage is for."""
        out = self.func(*args)
        if out is not None and self._stage.kind == "log":
            self._trainer.log(out)
        return out


_THEIRS = "torchrl.trainers.trainers"  # which is slow to import: it is used where others did


class TorchRLBridge:
    """Adapts hooks, steppers and stages of ``torchrl.trainers``."""

    stages: Mapping[str, HookPoint] = STAGES

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
        """Register an op of one of TorchRL's stages; among these, higher priorities run first.

        Raises:
            ConfigError: If a cadence is given, since only the ten points check cadences.
        """
        if every is not None:
            raise ConfigError(
                f"every={every!r}: {stage!s} is a stage of torchrl's, which takes no cadence; "
                "register the hook at one of the ten points."
            )
        call = functools.partial(op, **kwargs) if kwargs else op
        placed, register = _Stage(call, self._trainer, stage), self._trainer.register_op
        if stage not in _METHODS:
            return [register("pre_optim_steps", placed)]
        within = atan(priority) / pi  # keeps the order, within a half on both sides
        return [
            register(point, Adapter(call, getattr(placed, method)), priority=rank + within)
            for point, method, rank in _METHODS[stage]
        ]

    def op(self, point: HookPoint, op: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callable for one of TorchRL's hooks at a point."""
        if (theirs := sys.modules.get(_THEIRS)) is None:
            return op
        if point == "optimizer" and isinstance(op, theirs.OptimizerHook):
            entries = self._trainer.registry.points[point].entries
            # TorchRL passes it its index among those of its kind.
            index = sum(isinstance(entry.owner, theirs.OptimizerHook) for entry in entries)
            return Adapter(op, lambda losses, clip, norm, _: op(losses, clip, norm, index))
        hook = getattr(op, "__self__", None)
        stores = point == "batch_process" and isinstance(hook, theirs.ReplayBufferTrainer)
        if stores and self._trainer.source.replay_buffer is hook.replay_buffer:  # type: ignore[union-attr]
            return Adapter(op, lambda batch: None)  # the collector has stored it itself
        if isinstance(op, theirs.UpdateWeights):
            return Adapter(op, lambda: self.send(getattr(op, "collector", None), op))
        return op

    def module(self, name: str, module: Any) -> None:
        """Let a stepper replace the hook of ``Trainer(optimizer=)``.

        The optimizer is still saved as ``optimizer``, as in TorchRL.
        """
        theirs = sys.modules.get(_THEIRS)
        if theirs is not None and isinstance(module, theirs.OptimizationStepper):
            registry = self._trainer.registry
            given = getattr(self._trainer, "optimizer", None)
            own = None if given is None else registry.modules.get("optimizer")
            for entry in [e for e in registry.entries() if own is not None and e.owner is own]:
                registry.remove(entry)
            step = module.step
            takes = _Stepper(step, lambda sub_batch, *_: step(self._trainer, sub_batch))
            self._trainer.register_op("optimizer", takes)

    def part(self, thing: Any) -> Any:
        """Return the object that holds the state of a hook, the loss module or the collector."""
        theirs = sys.modules.get(_THEIRS)
        if theirs is not None and isinstance(thing, theirs.TargetNetUpdaterHook):
            from ..hooks.target_net_updater import TargetNetUpdaterHook

            return TargetNetUpdaterHook(thing.target_params_updater)
        if thing is self._trainer.source and waits_for_processes(thing):
            return _CollectorProcesses(thing, self._trainer.control)
        if isinstance(thing, nn.Module) and hasattr(type(thing), "value_estimator"):
            return _StatefulLoss(thing)
        return thing

    def send(self, collector: Any, send: Callable[[], None]) -> None:
        """Send something to a collector, unless a signal has ended its processes."""
        if self._trainer.control.signal is None or not waits_for_processes(collector):
            send()

    def only_cleans_up(self, handler: Any) -> bool:
        """Return whether a handler is the one that TorchRL's memory-mapped storages install.

        It removes their files, as a normal exit does too, and ends the process.
        """
        name, module = getattr(handler, "__name__", ""), getattr(handler, "__module__", None) or ""
        return name == "_signal_cleanup_handler" and module.startswith("torchrl.")


class _Stepper(Adapter):
    """Calls a TorchRL stepper at ``optimizer``."""

    computes_loss = True


class _CollectorProcesses:
    """The state of a collector with processes; empty if they cannot be asked for it."""

    def __init__(self, collector: Any, control: Control) -> None:
        self._collector = collector
        self._control = control

    def state_dict(self) -> dict[str, Any]:
        try:
            return self._collector.state_dict()
        except Exception:
            if self._control.signal is None:
                raise
            return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self._collector.load_state_dict(state_dict)
        else:
            warnings.warn(
                "the loaded state has none of the collector, whose processes could not be asked "
                "for it: its environments and transforms start from the beginning.",
                stacklevel=5,
            )
        self._collector.update_policy_weights_()


_LAZY_PARTS = {"_value_estimator": "value_estimator", "target_entropy_buffer": "target_entropy"}
"""Names in a loss's state, and the properties that build them."""


def build_lazy_parts(loss: Any, saved: Mapping[str, Any]) -> None:
    """Build the parts of a loss that it builds at its first call, if the saved state has them."""
    names = {str(key).partition(".")[0] for key in saved}
    for attribute in (prop for name, prop in _LAZY_PARTS.items() if name in names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is built with default hyper-parameters
            getattr(loss, attribute, None)


class _StatefulLoss(StatefulModule):
    """A loss with lazy parts, built before a state is compared."""

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List parameters and buffers that differ."""
        build_lazy_parts(self._module, saved)
        return super().mismatches(saved)


_INSTEAD = {
    "replay_buffer batch_size": "Register ReplayBufferTrainer(replay_buffer, batch_size)",
    "target_net_updater": "Register TargetNetUpdaterHook(target_net_updater)",
    "optimization_stepper": "Call stepper.register(trainer)",
    "async_collection": "Pass collector=OverlappedCollector(collector)",
    "checkpoint checkpoint_rotation checkpoint_metadata": (
        "Pass checkpoints=hooktrainer.store.CheckpointManager(...)"
    ),
    "log_timings auto_log_optim_steps": "Leave it out: this is always logged",
    "learner_backend learner_backend_options learner_poll_interval": "Start it with torchrun",
    "lr_scheduler": "Register LRSchedulerHook(lr_scheduler)",
    "gamma lmbda gae add_gae": "Register ValueEstimatorHook(GAE(gamma=..., lmbda=..., ...))",
    "weight_update_map": "Register UpdateWeights(collector, 1, weight_update_map=...)",
    "hooks": "Call hook.register(trainer) of each",
    "enable_logging log_rewards log_actions log_observations": "Register LogScalar(key) for each",
    "done_key terminated_key reward_key episode_reward_key action_key observation_key": (
        "Call set_keys of the loss and of the value estimator"
    ),
    "create_env_fn actor_network critic_network": "Leave it out: loss and collector have it",
}
INSTEAD: Final = {name: todo for names, todo in _INSTEAD.items() for name in names.split()}
"""Replacement of each argument of TorchRL's trainers and their configurations."""


class TorchRLNames:
    """Attributes of a trainer that only hooks written for ``torchrl.trainers`` read."""

    metrics: Metrics
    control: Control
    progress: Progress
    registry: Registry

    @property
    def _optim_count(self) -> int:
        return self.progress.optim_steps

    @property
    def _modules(self) -> dict[str, Any]:
        return self.registry.modules

    @property
    def _stop_training(self) -> bool:
        return self.control.stop_reason is not None

    @property
    def _stop_reason(self) -> str | None:
        return self.control.stop_reason

    @property
    def _log_dict(self) -> dict[str, list[float]]:
        """Each metric's last value, also by TorchRL's name: ``loss_actor`` for ``loss/actor``."""
        latest = {"loss": self.metrics.latest("loss/loss")} | self.metrics.all_latest()
        steps = self.progress.optim_steps or None
        named = {"optim_steps": steps} | {n.removeprefix("train/"): v for n, v in latest.items()}
        named |= {n.replace("loss/", "loss_"): v for n, v in latest.items()} | latest
        return {name: [value] for name, value in named.items() if value is not None}

    def _log(self, log_pbar: bool = False, **metrics: Any) -> None:
        self.metrics.log({**metrics, "log_pbar": log_pbar})

    @property
    def replay_buffer(self) -> Any:
        """The replay buffer of the first hook that has one, or ``None``."""
        buffers = (getattr(m, "replay_buffer", None) for m in self.registry.modules.values())
        return next((buffer for buffer in buffers if buffer is not None), None)

    @property
    def optimization_stepper(self) -> Any:
        """The hook that computes the losses itself, or ``None``."""
        entries = self.registry.points["optimizer"].entries
        return next((entry.owner for entry in entries if entry.computes_loss), None)

    def register_hook(self, dest: str, op: Any, **kwargs: Any) -> HookHandle:
        """The same as `register_op`."""
        return self.register_op(dest, op, **kwargs)  # type: ignore[attr-defined]
