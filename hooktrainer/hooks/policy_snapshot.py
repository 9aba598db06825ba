"""Save the policy as it learns, and show it to a function: what did it learn, and when?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count
from ..base.words import printable
from ..collect import AgentsCollector
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..policies.evaluation import EPISODES, SEED, check_not_negative
from ..store import Retention
from ..store.retention import as_retention
from ..store.rng import undisturbed
from ..store.run_dir import RunDir
from .evaluate import Evaluate

if TYPE_CHECKING:
    from ..loop.loop import Loop
    from ..policies.evaluator import Evaluator
    from ..policies.recorder import PolicyRecorder
    from ..policies.spread import SpreadCadence


class PolicySnapshot(TrainerHookBase):
    """Takes snapshots of the policy: before any training, at a cadence, and at the end of the run.

    Each is saved under ``<run>/policies/step_<frames>/``, as a program that needs no training code;
    see `hooktrainer.load_policy`. A process of lowest priority plays it, with environments and
    seeds of its own, and records what it is worth; at the end of the run it is waited for. The run
    is the same with and without snapshots, bit for bit.

    Args:
        policy: The policy, as for `VectorCollector`, or as for `AgentsCollector`; a
            `torch.nn.Module`.
        env: Its environment, likewise; ``None`` to save nothing and only call ``policy_fn``.
        run_dir: The run's directory; ``None`` to save nothing.
        every: When to take a snapshot.
        snapshots: Instead of ``every``, how many the run shall have at its end, evenly spaced, even
            if it ends early.
        policy_fn: Called with the frames so far and the policy at every snapshot. It must not
            change the policy; random numbers that it draws are not missed by the run.
        keep: Which to keep; all by default, the spaced ones with ``snapshots``. As for checkpoints;
            the metric for `Best` is ``"eval/return"``.
        episodes: Episodes that each is played for; 0 to play none.
        seed: Seed of these episodes.
        env_kwargs: Keyword arguments of the environment, with an id.
        frame_skip: How often the collector repeats each action.
        categorical_actions: Whether the policy's discrete actions are indices.
        groups: Of several agents, the groups; as for `AgentsCollector`.
        report: Whether to print, at the end, what became of the snapshots.

    Raises:
        ConfigError: If not exactly one of ``every`` and ``snapshots`` is given, ``episodes`` or
            ``seed`` is negative, or there is nothing to do with a snapshot.
    """

    rank_zero_only = True
    phase = "snapshot"

    def __init__(
        self,
        policy: Any,
        env: Any = None,
        run_dir: RunDir | Path | str | None = None,
        *,
        every: Every | None = None,
        snapshots: int | None = None,
        policy_fn: Callable[[int, Any], object] | None = None,
        keep: Retention | None = None,
        episodes: int = EPISODES,
        seed: int = SEED,
        env_kwargs: Mapping[str, Any] | None = None,
        frame_skip: int = 1,
        categorical_actions: bool = True,
        groups: Mapping[str, Sequence[str]] | None = None,
        report: bool = True,
    ) -> None:
        if (every is None) == (snapshots is None):
            raise ConfigError(
                f"PolicySnapshot(every={every!r}, snapshots={snapshots!r}): give exactly one."
            )
        if snapshots is not None:
            check_snapshots(snapshots)
        check_not_negative("episodes", episodes)
        check_not_negative("seed", seed)
        if (env is None or run_dir is None) and policy_fn is None:
            raise ConfigError(
                "PolicySnapshot needs env and run_dir to save snapshots, or a policy_fn to call."
            )
        self.policy = policy
        self.env = env
        self.run_dir = None if run_dir is None or env is None else RunDir(run_dir)
        self.is_saved = self.run_dir is None  # else the snapshots on the disk tell
        self.every = every
        self.snapshots = snapshots
        self.policy_fn = policy_fn
        self.keep = None if keep is None else as_retention(keep)
        self.episodes = episodes
        self.seed = seed
        self.env_kwargs = env_kwargs
        self.frame_skip = frame_skip
        self.categorical_actions = categorical_actions
        self.groups = groups
        self.report = report
        self._recorder: PolicyRecorder | None = None
        self._evaluator: Evaluator | None = None
        self._cadence: SpreadCadence | None = None
        self._newest = -1  # frames of the newest snapshot
        self._started = 0.0  # when training would have begun if it had not been interrupted
        self._ended_well = False

    @classmethod
    def of(cls, trainer: Loop, run_dir: RunDir | None = None, **options: Any) -> PolicySnapshot:
        """Take snapshots of the policy that a trainer's `Evaluate` hook evaluates.

        Args:
            trainer: The trainer.
            run_dir: The run's directory; ``None`` to save nothing.
            **options: As for `PolicySnapshot`.

        Raises:
            ConfigError: If there is no such hook, or it plays with another collector.
        """
        hooks = trainer.registry.modules.values()
        evaluate = next((hook for hook in hooks if isinstance(hook, Evaluate)), None)
        if evaluate is None:
            raise ConfigError(
                "snapshots need an Evaluate hook, which says what the policy and its environment "
                "are, and this run has none: evaluate (algorithms do with eval_episodes above 0), "
                "or register a PolicySnapshot of your own."
            )
        if run_dir is not None and evaluate.collector not in (None, AgentsCollector):
            raise ConfigError(
                "snapshots of this policy cannot be saved: it is evaluated by a collector of its "
                "own, which does not say how others can play it. Leave snapshots out; checkpoints "
                "hold it."
            )
        return cls(
            evaluate.policy,
            evaluate.env,
            run_dir,
            env_kwargs=evaluate.env_kwargs,
            frame_skip=evaluate.frame_skip or 1,
            groups=evaluate.groups,
            **options,
        )

    def __call__(self) -> None:
        """Take a snapshot, if one is due."""
        if self._cadence is None or self._cadence.due(self.trainer.collected_frames, self._newest):
            self.snapshot()

    def snapshot(self) -> None:
        """Take a snapshot of the policy as it is."""
        progress = self.trainer.progress
        # The trainer's own clock stands still until the end of the batch.
        progress = dataclasses.replace(progress, seconds=perf_counter() - self._started)
        self._newest = progress.frames
        with undisturbed():
            if self.policy_fn is not None:
                self.policy_fn(progress.frames, self.policy)
            if self._recorder is not None:
                self._recorder.save(progress, self._keep_now())
                if self._evaluator is not None:
                    self._evaluator.look()

    def _keep_now(self) -> Retention | None:
        if self.keep is None and self._cadence is not None:
            return self._cadence.keep(self._newest)
        return self.keep

    def on_train_start(self, trainer: Loop) -> None:
        """Take the first snapshot, before any training; a resumed run has it already."""
        with undisturbed():
            self._open(trainer)
        self._started = perf_counter() - trainer.progress.seconds
        if self._newest < 0:
            self.snapshot()

    def _open(self, trainer: Loop) -> None:
        from ..policies.evaluator import Evaluator
        from ..policies.policy_files import DIRECTORY
        from ..policies.recorder import PolicyRecorder
        from ..policies.spread import SpreadCadence

        if self.snapshots is not None:
            self._cadence = SpreadCadence(self.snapshots, trainer.total_frames)
        if self.run_dir is None:
            return
        self._recorder = PolicyRecorder(
            self.run_dir.path / DIRECTORY,
            self.policy,
            self.env,
            self.env_kwargs,
            frame_skip=self.frame_skip,
            categorical_actions=self.categorical_actions,
            groups=self.groups,
            run_id=self.run_dir.run_id,
        )
        self._newest = self._recorder.take_up(trainer.collected_frames)
        environment = self._recorder.environment
        if self.episodes and environment.reason is None:
            self._evaluator = Evaluator(self.run_dir.path, self.seed, self.episodes, environment)
        elif self.episodes and self.report:
            print(
                "the policies are saved, but cannot be played by themselves: "
                f"{printable(environment.reason)}"
            )

    def on_train_end(self, trainer: Loop) -> None:
        """Take the last snapshot, and thin out those that were kept in case the run ended early."""
        if self._newest != trainer.collected_frames:
            self.snapshot()
        self._ended_well = trainer.control.signal is None
        if self._recorder is not None:
            self._recorder.wait()
            if self._ended_well and self._cadence is not None and self.keep is None:
                self._recorder.thin(self._cadence.final)

    def close(self) -> None:
        """Wait for what is being saved, and, if the run ended well, for what is being played."""
        if self._recorder is not None:
            self._recorder.wait()
        if self._evaluator is not None:
            self._evaluator.finish(wait=self._ended_well, report=self.report)
        if self._recorder is not None and self._ended_well and self.keep is not None:
            self._recorder.thin(self.keep)

    def state_dict(self) -> dict[str, Any]:
        """Return when the newest snapshot was taken."""
        return {"newest": self._newest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore when the newest snapshot was taken."""
        self._newest = state_dict["newest"]

    def register(self, trainer: Loop, name: str = "policy_snapshot") -> None:
        """Register at ``post_steps``."""
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self, every=self.every)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_recorder": None, "_evaluator": None}


def check_snapshots(snapshots: int) -> None:
    """Refuse a number of snapshots that is not an integer of at least 2.

    Raises:
        ConfigError: Says what is wrong with it.
    """
    check_count("snapshots", snapshots)
    if snapshots < 2:
        raise ConfigError("snapshots=1: there are at least 2, the first and the last.")
