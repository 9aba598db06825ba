"""Roll out the policy in a torchrl environment and log what it earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.checks import check_count
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase
from ..store.rng import undisturbed

if TYPE_CHECKING:
    from ..loop.loop import Loop

_REWARD = ("next", "reward")


class LogValidationReward(TrainerHookBase):
    """Evaluates the policy every so many calls, in an environment of its own.

    Metrics: ``r_evaluation``, the mean reward of a step divided by ``frame_skip``, and
    ``total_r_evaluation``, the mean return of the trajectories in the roll-out.

    Args:
        record_interval: Calls between two evaluations; the first call evaluates.
        record_frames: Longest roll-out, in steps.
        frame_skip: Environment frames per step.
        policy_exploration: The policy.
        environment: A `torchrl.envs.EnvBase`.
        exploration_type: A `torchrl.envs.ExplorationType`; by default deterministic.
        log_keys: Entries of the roll-out to log besides or instead of the reward.
        out_keys: Entry to the name of its metric; by default the entry's own name.
        suffix: Suffix of a video that a recorder transform of the environment writes.
        log_pbar: Whether the metrics are shown in the progress bar.
        seed: Seed of the environment at every evaluation, so that the same episodes are played.
    """

    rank_zero_only = True
    phase = "evaluate"

    def __init__(
        self,
        *,
        record_interval: int,
        record_frames: int,
        frame_skip: int = 1,
        policy_exploration: Any,
        environment: Any = None,
        exploration_type: Any = None,
        log_keys: Sequence[NestedKey] | None = None,
        out_keys: Mapping[NestedKey, str] | None = None,
        suffix: str | None = None,
        log_pbar: bool = False,
        seed: int = 0,
    ) -> None:
        check_count("record_interval", record_interval)
        check_count("record_frames", record_frames)
        check_count("frame_skip", frame_skip)
        if environment is None:
            raise ConfigError("LogValidationReward: pass environment=, a torchrl environment.")
        self.record_interval = record_interval
        self.record_frames = record_frames
        self.frame_skip = frame_skip
        self.policy_exploration = policy_exploration
        self.environment = environment
        self.exploration_type = exploration_type
        self.log_keys = [_REWARD] if log_keys is None else list(log_keys)
        self.out_keys = {_REWARD: "r_evaluation"} | dict(out_keys or {})
        self.suffix = suffix
        self.log_pbar = log_pbar
        self.seed = seed
        self._count = 0

    @torch.inference_mode()
    def __call__(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Evaluate if it is time, and return the metrics."""
        due = self._count % self.record_interval == 0
        self._count += 1
        if not due:
            return None
        with undisturbed():
            rollout = self._rollout()
        metrics: dict[str, Any] = {"log_pbar": self.log_pbar}
        mask = rollout["mask"]
        for key in self.log_keys:
            name = self.out_keys.get(key, key if isinstance(key, str) else "_".join(key))
            value = rollout.get(key).float()
            if key == _REWARD:
                metrics[name] = value[mask].mean() / self.frame_skip
                metrics[f"total_{name}"] = value.sum(dim=rollout.ndim - 1).mean()
            else:
                metrics[name] = value[mask].mean()
        return metrics

    def _rollout(self) -> TensorDictBase:
        from torchrl.collectors.utils import split_trajectories
        from torchrl.envs import ExplorationType, set_exploration_type

        policy, environment = self.policy_exploration, self.environment
        modules = [m for m in (policy, environment) if isinstance(m, torch.nn.Module)]
        training = [m.training for m in modules]
        for module in modules:
            module.eval()
        environment.set_seed(self.seed)
        try:
            with set_exploration_type(self.exploration_type or ExplorationType.DETERMINISTIC):
                rollout = environment.rollout(
                    policy=policy,
                    max_steps=self.record_frames,
                    auto_reset=True,
                    auto_cast_to_device=True,
                    break_when_any_done=False,
                ).clone()
        finally:
            for module, mode in zip(modules, training, strict=True):
                module.train(mode)
        dump = getattr(getattr(environment, "transform", None), "dump", None)
        if callable(dump):
            dump(suffix=self.suffix)
        return split_trajectories(rollout)

    def state_dict(self) -> dict[str, Any]:
        """Return the count of calls and the environment's state."""
        return {"count": self._count, "environment": dict(self.environment.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._count = state_dict["count"]
        self.environment.load_state_dict(state_dict["environment"])

    def close(self) -> None:
        """Close the environment."""
        if not getattr(self.environment, "is_closed", False):
            self.environment.close()

    def register(self, trainer: Loop, name: str = "recorder") -> None:
        """Register at ``post_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self)
