"""Adapts hooks of ``torchrl.trainers`` to a trainer's registry."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from ..collect.adapt import waits_for_processes
from ..loop.cadence import Progress
from ..loop.dispatch import Adapter
from ..loop.hook_points import HookPoint
from ..loop.metrics import Metrics
from ..loop.registry import HookHandle
from ..loop.stateful import StatefulModule
from . import stages

if TYPE_CHECKING:
    from ..loop.cadence import Every
    from ..loop.control import Control
    from ..loop.loop import Loop
    from ..loop.registry import Registry


class TorchRLBridge:
    """Adapts hooks, steppers and stages of ``torchrl.trainers``."""

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
        """Register an op of one of TorchRL's stages at the matching points."""
        return stages.place(self._trainer, stage, op, kwargs, priority, every)

    def op(self, point: HookPoint, op: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callable for one of TorchRL's hooks at a point."""
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
        """Let a stepper replace the hook of ``Trainer(optimizer=)``.

        The optimizer is still saved as ``optimizer``, as in TorchRL.
        """
        if _is(module, "OptimizationStepper"):
            registry = self._trainer.registry
            given = getattr(self._trainer, "optimizer", None)
            own = None if given is None else registry.modules.get("optimizer")
            for entry in [e for e in registry.entries() if own is not None and e.owner is own]:
                registry.remove(entry)
            self._trainer.register_op("optimizer", _Stepper(module.step, self._trainer))

    def part(self, thing: Any) -> Any:
        """Return the object that holds the state of a hook, the loss module or the collector."""
        if _is(thing, "TargetNetUpdaterHook"):
            return _UpdaterCount(thing)
        if thing is self._trainer.source and waits_for_processes(thing):
            return _CollectorProcesses(thing, self._trainer.control)
        if has_value_estimator(thing):
            return _StatefulLoss(thing)
        return thing

    def send(self, collector: Any, send: Callable[[], None]) -> None:
        """Send something to a collector; do not wait for processes that a signal has ended."""
        if waits_for_processes(collector):
            self._trainer.control.unless_signalled(send)
        else:
            send()

    def only_cleans_up(self, handler: Any) -> bool:
        """Return whether a handler is the one that TorchRL's memory-mapped storages install.

        It removes their files, as a normal exit does too, and ends the process.
        """
        name, module = getattr(handler, "__name__", ""), getattr(handler, "__module__", None) or ""
        return name == "_signal_cleanup_handler" and module.startswith("torchrl.")


class _InOrder(Adapter):
    """Passes an optimizer hook its index among those of its kind, as TorchRL does."""

    def __init__(self, func: Callable[..., Any], place: int) -> None:
        super().__init__(func)
        self._place = place

    def __call__(
        self, losses: Any, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> Any:
        return self.func(losses, clip_grad_norm, clip_norm, self._place)


class _AlreadyStored(Adapter):
    """Skips storing a batch that the collector has stored itself."""

    def __call__(self, batch: Any) -> None:
        pass


class _OfTrainer(Adapter):
    """Wraps an op of TorchRL's that needs the trainer."""

    def __init__(self, func: Callable[..., Any], trainer: Loop) -> None:
        super().__init__(func)
        self._trainer = trainer


class _UpdateWeights(_OfTrainer):
    """Updates a collector's weights unless its processes have ended."""

    def __call__(self) -> None:
        self._trainer.bridge.send(getattr(self.func, "collector", None), self.func)


class _Stepper(_OfTrainer):
    """Calls a TorchRL stepper at ``optimizer``."""

    computes_loss = True

    def __call__(self, sub_batch: Any, *_: Any) -> Any:
        return self.func(self._trainer, sub_batch)


class _UpdaterCount:
    """The state of TorchRL's `TargetNetUpdaterHook`: its updater's step count."""

    def __init__(self, hook: Any) -> None:
        self._updater = hook.target_params_updater

    def state_dict(self) -> dict[str, Any]:
        counter = getattr(self._updater, "counter", None)
        return {} if counter is None else {"counter": counter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "counter" in state_dict:
            self._updater.counter = state_dict["counter"]


def _is(thing: Any, name: str) -> bool:
    """Return whether ``thing`` is of a class of ``torchrl.trainers``, which are slow to import."""
    theirs = sys.modules.get("torchrl.trainers.trainers")
    kind = getattr(theirs, name, None)
    return kind is not None and isinstance(thing, kind)


class _CollectorProcesses:
    """The state of a collector with processes; empty if a signal has ended them."""

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
                "the loaded state has none of the collector, whose processes a signal had ended "
                "when it was saved: its environments and transforms start from the beginning.",
                stacklevel=5,
            )
        self._collector.update_policy_weights_()


_PREFIX = "_value_estimator."


def has_value_estimator(module: Any) -> bool:
    """Return whether ``module`` is a loss that builds its value estimator lazily."""
    return isinstance(module, nn.Module) and hasattr(type(module), "value_estimator")


def build_value_estimator(loss: Any, saved: Mapping[str, Any]) -> None:
    """Build the value estimator of such a loss if the saved state has one."""
    if _is_in(saved) and not _is_in(loss.state_dict()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is built with default hyper-parameters
            loss.value_estimator  # noqa: B018


def _is_in(state: Mapping[str, Any]) -> bool:
    return any(str(key).startswith(_PREFIX) for key in state)


class _StatefulLoss(StatefulModule):
    """A loss with a lazy value estimator, built before a state is compared."""

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List parameters and buffers that differ."""
        build_value_estimator(self._module, saved)
        return super().mismatches(saved)


INSTEAD: Final[Mapping[str, str]] = {
    name: todo
    for todo, names in {
        "Register ReplayBufferTrainer(replay_buffer, batch_size)": "replay_buffer batch_size",
        "Register TargetNetUpdaterHook(target_net_updater)": "target_net_updater",
        "Call stepper.register(trainer)": "optimization_stepper",
        "Pass collector=OverlappedCollector(collector)": "async_collection",
        "Pass checkpoints=CheckpointManager(directory, keep=..., config=...)": (
            "checkpoint checkpoint_rotation checkpoint_metadata"
        ),
        "Leave it out: this is always logged": "log_timings auto_log_optim_steps",
        "Start several learners with torchrun": (
            "learner_backend learner_backend_options learner_poll_interval"
        ),
        "Register LRSchedulerHook(lr_scheduler)": "lr_scheduler",
        "Register ValueEstimatorHook(GAE(gamma=..., lmbda=..., value_network=...))": (
            "gamma lmbda gae add_gae"
        ),
        "Register UpdateWeights(collector, 1, weight_update_map=...)": "weight_update_map",
        "Call hook.register(trainer) of each": "hooks",
        "Register LogScalar(key) for each entry that is to be logged": (
            "enable_logging log_rewards log_actions log_observations"
        ),
        "Call set_keys of the loss and of the value estimator": (
            "done_key terminated_key reward_key episode_reward_key action_key observation_key"
        ),
        "Leave it out: the loss and the collector have it": (
            "create_env_fn actor_network critic_network"
        ),
    }.items()
    for name in names.split()
}
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
    def _log_dict(self) -> Mapping[str, list[float]]:
        return LoggedValues(self.metrics, self.progress)

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


class LoggedValues(Mapping[str, list[float]]):
    """Metric name to a list of its last value, like the log of TorchRL's trainer.

    TorchRL's names are accepted: ``loss_actor`` for ``loss/actor``, and ``optim_steps``.
    """

    def __init__(self, metrics: Metrics, progress: Progress) -> None:
        self._metrics = metrics
        self._progress = progress

    def __getitem__(self, name: str) -> list[float]:
        if name == "optim_steps" and self._progress.optim_steps:
            return [self._progress.optim_steps]
        for own in (name, f"loss/{name.removeprefix('loss_')}", f"train/{name}"):
            value = self._metrics.latest(own)
            if value is not None:
                return [value]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics.names())

    def __len__(self) -> int:
        return len(self._metrics.names())


State = Mapping[str, Any]


def to_ours(hook: Any, state: State, progress: Progress) -> dict[str, Any]:
    """Convert the state of TorchRL's hook to that of ours of the same name."""
    from ..hooks import EarlyStopping, LogValidationReward, RewardNormalizer, UpdateWeights

    if isinstance(hook, RewardNormalizer):
        stats = state["_reward_stats"]
        return {
            "decay": stats["decay"],
            "sum": torch.as_tensor(stats.get("sum", 0.0)).double(),
            "sum_of_squares": torch.as_tensor(stats.get("ssq", 0.0)).double(),
            "count": float(stats.get("count", 0.0)),
        }
    if isinstance(hook, EarlyStopping):
        return {
            "best_score": state["best_score"],
            "stop_reason": state["stop_reason"],
            "improved_at": state["_last_improvement_frame"] or 0,
        }
    if isinstance(hook, LogValidationReward):
        return {"count": state["_count"], "environment": state["recorder_state_dict"]}
    if isinstance(hook, UpdateWeights):
        if hook.interval_unit == "optim_steps":
            return {"counter": progress.optim_steps - state.get("last_update_count", 0)}
        return {"counter": state["counter"]}
    return dict(state)


def to_theirs(state: State, optim_steps: int) -> dict[str, Any]:
    """Convert the state of one of our hooks to that of TorchRL's of the same name."""
    keys = set(state)
    if keys == _REWARD_NORMALIZER:
        return _their_reward_normalizer(state)
    if keys == _EARLY_STOPPING:
        seen = state["best_score"] is not None
        return {
            "best_score": state["best_score"],
            "stop_reason": state["stop_reason"],
            "_last_improvement_frame": state["improved_at"] if seen else None,
        }
    if keys == _VALIDATION:
        return {"_count": state["count"], "recorder_state_dict": state["environment"]}
    if keys == _UPDATE_WEIGHTS:
        return {"counter": state["counter"], "last_update_count": optim_steps}
    return dict(state)


# The keys by which our hooks' states are recognized.
_REWARD_NORMALIZER = {"decay", "sum", "sum_of_squares", "count"}
_EARLY_STOPPING = {"best_score", "stop_reason", "improved_at"}
_VALIDATION = {"count", "environment"}
_UPDATE_WEIGHTS = {"counter"}


def _their_reward_normalizer(state: State) -> dict[str, Any]:
    total, squares, count = (
        torch.as_tensor(state[key], dtype=torch.float64)
        for key in ("sum", "sum_of_squares", "count")
    )
    stats: dict[str, Any] = {"decay": state["decay"]}
    if count:
        variance = (squares - total.square() / count) / (count - 1).clamp_min(1)
        eps = torch.finfo(torch.get_default_dtype()).eps
        spread = {"var": variance, "std": variance.clamp_min(eps).sqrt()}
        sums = {"sum": total, "ssq": squares, "mean": total / count}
        stats |= {key: value.float() for key, value in (sums | spread).items()}
        stats["count"] = state["count"]
    return {
        "_reward_stats": stats,
        "_normalize_has_been_called": bool(count),
        "_update_has_been_called": bool(count),
    }
