"""The names under which TorchRL's hooks look for things in their trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..loop.metrics import Metrics

if TYPE_CHECKING:
    from ..loop.bridge import HookHandle
    from ..loop.control import Control
    from ..loop.progress import Progress
    from ..loop.registry import Registry

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
"""By argument of TorchRL's trainers and their configurations, what replaces it here."""


class TorchRLNames:
    """What hooks written for ``torchrl.trainers`` read of their trainer, and nothing else does."""

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
        """The replay buffer of the first hook that has one; ``None`` if none has."""
        buffers = (getattr(m, "replay_buffer", None) for m in self.registry.modules.values())
        return next((buffer for buffer in buffers if buffer is not None), None)

    @property
    def optimization_stepper(self) -> Any:
        """The hook that computes the losses and takes the steps; ``None`` if that is the loop."""
        entries = self.registry.points["optimizer"].entries
        return next((entry.owner for entry in entries if entry.computes_loss), None)

    def register_hook(self, dest: str, op: Any, **kwargs: Any) -> HookHandle:
        """The same as `register_op`."""
        return self.register_op(dest, op, **kwargs)  # type: ignore[attr-defined]


class LoggedValues(Mapping[str, list[float]]):
    """Metric name to its values, as a trainer of TorchRL keeps them; here, to the last one.

    What TorchRL's trainer logs itself is found under its name there: ``loss_actor``, which is
    ``loss/actor`` here, and ``optim_steps``.
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
