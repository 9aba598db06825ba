"""Hooks that evaluate the policy: `Evaluate`, and `LogValidationReward` in TorchRL environments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import InteractionType

from ..base.checks import EVALUATION_SEED, check_count
from ..collect.info import check_info_keys
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..loop.metrics import Latest
from ..store.rng import undisturbed

if TYPE_CHECKING:
    from ..collect import Collector
    from ..loop.loop import Loop

_STEPS_AT_ONCE = 64
_MANY_STEPS = 1 << 17  # after which an evaluation prints that it is still running


@dataclass(eq=False, repr=False)
class Evaluate(TrainerHookBase):
    """Evaluates the policy in separate environments; may stop a solved run.

    Each environment plays exactly one episode, so short episodes have no larger weight. Every
    evaluation plays the same seeds and closes the log window. Training draws the same random
    numbers with and without evaluation.

    Args:
        env: An environment id or a factory of environments, as for `VectorCollector`. What the id
            of a tensor environment stands for is played by Gymnasium's own.
        policy: The policy, as for `VectorCollector`.
        every: When to evaluate; the end of the run is always evaluated.
        episodes: Episodes per evaluation.
        stop_at: Mean return at which the run stops as solved, also when resumed.
        seed: Seed of the episodes.
        env_kwargs: Keyword arguments of the environment.
        frame_skip: Frames per action; by default the collector's.
        clip_actions: Of tensor environments, as for `VectorCollector`.
        info_keys: Entries of ``info``, as for `VectorCollector`; the mean of each over the last
            steps of the episodes is logged as ``<group>/<key>``.
        log_pbar: Whether ``<group>/return`` is shown in the progress bar.
        group: Group of the metrics ``return``, ``return_std``, ``length`` and ``episodes``; unique
            among the hooks of a trainer.
        deterministic: Whether the policy's deterministic actions are played, or ones drawn from it.
        collector: Class or factory of the collector, called with `VectorCollector`'s arguments;
            that by default.
        groups: Groups of agents, as for `VectorCollector`.

    Attributes:
        evaluated_at: Frames at the last evaluation; -1 before the first.
    """

    at = "post_steps_log"
    rank_zero_only = True
    saved_attributes = ("evaluated_at", "_mean")
    phase = "evaluate"

    env: Any
    policy: Any
    _: KW_ONLY
    every: Every
    episodes: int = 10
    stop_at: float | None = None
    seed: int = EVALUATION_SEED
    env_kwargs: Mapping[str, Any] | None = None
    frame_skip: int | None = None
    clip_actions: bool = False
    info_keys: Sequence[str] = ()
    log_pbar: bool = True
    group: str = "eval"
    deterministic: bool = True
    collector: Callable[..., Collector] | None = None
    groups: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        check_count("episodes", self.episodes)
        self.info_keys = check_info_keys(self.info_keys)
        self._collector: Collector | None = None
        self.evaluated_at = -1
        self._mean: float | None = None  # of the last evaluation before the end

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Evaluate and return the metrics."""
        metrics = self.evaluate()
        self.evaluated_at = self.trainer.progress.frames
        self.trainer.request_log()
        self._mean = float(metrics[f"{self.group}/return"])
        self._stop_if_solved()
        return metrics

    def _stop_if_solved(self) -> None:
        if self._mean is None or self.stop_at is None or not self.is_registered:
            return
        if self._mean >= self.stop_at:
            self.trainer.request_stop(
                f"solved: {self.group}/return {self._mean:.1f} ≥ {self.stop_at:g} over "
                f"{self.episodes} episodes",
                status="solved",
            )

    def evaluate(self) -> dict[str, Any]:
        """Play the episodes and return the metrics."""
        with undisturbed():
            returns, lengths, *infos = self._play()
        group, means = self.group, zip(self.info_keys, infos, strict=True)
        return {
            f"{group}/return": Latest(returns.mean()),
            f"{group}/return_std": Latest(returns.std(correction=0)),
            f"{group}/length": Latest(lengths.mean()),
            f"{group}/episodes": Latest(self.episodes),
            **{f"{group}/{key}": Latest(values.mean()) for key, values in means},
            "log_pbar": [f"{group}/return"] if self.log_pbar else False,
        }

    def _play(self) -> torch.Tensor:
        """Return ``[2 + len(info_keys), episodes]``, float64: returns, lengths and infos."""
        if self._collector is None:
            from ..collect import VectorCollector
            from ..collect.make_envs import find_spec
            from ..collect.worlds import is_world

            make: Callable[..., Collector] = self.collector or VectorCollector
            env = self.env
            if isinstance(env, str) and is_world(env):
                env = find_spec(env)
            random, best = InteractionType.RANDOM, InteractionType.DETERMINISTIC
            self._collector = make(
                env,
                self.policy,
                num_envs=self.episodes,
                frames_per_batch=self.episodes * _STEPS_AT_ONCE,
                env_kwargs=self.env_kwargs,
                frame_skip=self.frame_skip,
                info_keys=self.info_keys,
                exploration_type=best if self.deterministic else random,
                **({} if self.groups is None else {"groups": self.groups}),
                **({"clip_actions": True} if self.clip_actions else {}),
            )
        collector, keys = self._collector, ("episode_reward", "step_count", *self.info_keys)
        collector.set_seed(self.seed)
        if not self.deterministic:
            torch.manual_seed(self.seed)  # policies draw from torch's own generator
        ended = torch.zeros(self.episodes, dtype=torch.bool)
        results = torch.zeros(len(keys), self.episodes, dtype=torch.float64)
        steps = 0
        while not ended.all():
            following = collector.collect()["next"].cpu()
            done = following["done"].squeeze(-1)
            first = done.int().argmax(-1, keepdim=True)  # per environment; 0 if none ended
            ends_here = done.any(-1) & ~ended
            for row, key in zip(results, keys, strict=True):
                value = following[key].squeeze(-1).gather(-1, first).squeeze(-1).double()
                row[ends_here] = value[ends_here]
            ended |= ends_here
            steps += _STEPS_AT_ONCE
            if steps == _MANY_STEPS and not ended.all():
                warnings.warn(
                    f"{int((~ended).sum())} of {self.episodes} episodes of an evaluation have not "
                    f"ended after {steps:,} steps: give {self.env!r:.60} a limit of steps.",
                    stacklevel=2,
                )
        return results

    def on_train_end(self, trainer: Loop) -> None:
        """Evaluate the final policy, unless the last evaluation already has."""
        if self.evaluated_at != trainer.progress.frames:
            self.evaluated_at = trainer.progress.frames
            trainer.log(self.evaluate())

    def close(self) -> None:
        """Close the environments."""
        if self._collector is not None:
            self._collector.shutdown()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the last evaluation; if it solved the run, request a stop."""
        super().load_state_dict(state_dict)
        self._stop_if_solved()

    def register(self, trainer: Loop, name: str = "evaluate") -> None:
        """Register at ``post_steps_log``."""
        for other_name, other in trainer.registry.modules.items():
            if isinstance(other, Evaluate) and other is not self and other.group == self.group:
                raise ConfigError(
                    f"Evaluate {name!r} logs {self.group}/return, as {other_name!r} does already: "
                    "pass another group=."
                )
        if self.frame_skip is None:
            self.frame_skip = trainer.source.frame_skip
        super().register(trainer, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_collector": None}


# -- `LogValidationReward`.

_REWARD = ("next", "reward")


@dataclass(eq=False, repr=False)
class LogValidationReward(TrainerHookBase):
    """Evaluates the policy in a TorchRL environment at every ``record_interval``-th call.

    Metrics: ``r_evaluation``, the mean reward of a step divided by ``frame_skip``, and
    ``total_r_evaluation``, the mean return of the trajectories.

    Args:
        record_interval: Calls between two evaluations; the first call evaluates.
        record_frames: Maximum length of the roll-out, in steps.
        frame_skip: Environment frames per step.
        policy_exploration: The policy.
        environment: A `torchrl.envs.EnvBase`.
        exploration_type: A `torchrl.envs.ExplorationType`; by default deterministic.
        log_keys: Entries of the roll-out to log; by default the reward.
        out_keys: Maps an entry to its metric's name; by default the entry's name.
        suffix: Suffix of a video that a recorder transform of the environment writes.
        log_pbar: Whether the metrics are shown in the progress bar.
        seed: Seed of the environment at every evaluation.
    """

    at = "post_steps_log"
    default_name = "recorder"
    rank_zero_only = True
    phase = "evaluate"

    _: KW_ONLY
    record_interval: int
    record_frames: int
    frame_skip: int = 1
    policy_exploration: Any
    environment: Any = None
    exploration_type: Any = None
    log_keys: Sequence[NestedKey] | None = None
    out_keys: Mapping[NestedKey, str] | None = None
    suffix: str | None = None
    log_pbar: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("record_interval", self.record_interval)
        check_count("record_frames", self.record_frames)
        check_count("frame_skip", self.frame_skip)
        if self.environment is None:
            raise ConfigError("LogValidationReward: pass environment=, a torchrl environment.")
        self.log_keys = [_REWARD] if self.log_keys is None else list(self.log_keys)
        self._names = {_REWARD: "r_evaluation"} | dict(self.out_keys or {})
        self._count = 0

    @torch.inference_mode()
    def __call__(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Evaluate if due, and return the metrics."""
        due = self._count % self.record_interval == 0
        self._count += 1
        if not due:
            return None
        with undisturbed():
            rollout = self._rollout()
        metrics: dict[str, Any] = {"log_pbar": self.log_pbar}
        mask = rollout["mask"]
        for key in self.log_keys or ():
            name = self._names.get(key, key if isinstance(key, str) else "_".join(key))
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
        """Return the state, in TorchRL's form."""
        return {"_count": self._count, "recorder_state_dict": self.environment.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._count = state_dict["_count"]
        self.environment.load_state_dict(state_dict["recorder_state_dict"])

    def close(self) -> None:
        """Close the environment."""
        if not getattr(self.environment, "is_closed", False):
            self.environment.close()
