"""`PolicySnapshot`: saves the policy during training, and evaluates it in the background."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count
from ..base.child_program import ChildProgram
from ..base.endings import ENDED
from ..base.words import plural, printable, shell_word
from ..collect.action_format import clipped
from ..collect.make_envs import Wrapped
from ..collect.worlds import is_world
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..loop.signals import interruptible
from ..policies import Environment, list_policies
from ..policies.saved import EPISODES, SEED, best_policy
from ..store import EveryFrames, Last, Retention, Spread, undisturbed
from ..store.retention import best_of
from ..store.run_dir import RunDir
from .evaluate import Evaluate

if TYPE_CHECKING:
    from ..loop.loop import Loop
    from ..policies import PolicyRecorder


@dataclass(eq=False, repr=False)
class PolicySnapshot(TrainerHookBase):
    """Takes snapshots of the policy before training, at a cadence, and at the end.

    Each is saved under ``<run>/policies/step_<frames>/`` as a program without training code; see
    `hooktrainer.load_policy`. A process of lowest priority evaluates it in separate environments;
    the end of the run waits for it, at its own priority. Training is the same with and without
    snapshots, bit for bit.

    Args:
        policy: The policy, a `torch.nn.Module`, as for `VectorCollector`.
        env: Its environment, likewise; ``None`` to save nothing and only call ``policy_fn``.
        run_dir: The run's directory; ``None`` to save nothing.
        every: When to take a snapshot.
        snapshots: Instead of ``every``, the number at the end of the run, evenly spaced even if the
            run ends early.
        policy_fn: Called with the frames and the policy at every snapshot. It must not change the
            policy; random numbers it draws do not affect the run.
        keep: Retention, as for checkpoints; by default all, or evenly spaced ones with
            ``snapshots``. The metric for `Best` is ``"eval/return"``.
        episodes: Episodes of each evaluation; 0 for none.
        seed: Seed of these episodes.
        env_kwargs: Keyword arguments of the environment, with an id.
        frame_skip: How often the collector repeats each action.
        categorical_actions: As for `VectorCollector`: false for one-hot vectors.
        groups: Groups of agents, as for `VectorCollector`.
        report: Whether to print a summary of the snapshots at the end.

    Raises:
        ConfigError: If not exactly one of ``every`` and ``snapshots`` is given, ``episodes`` or
            ``seed`` is negative, or there is nothing to do with a snapshot.
    """

    at = "post_steps_log"  # after the last change of the policy, that of its observation statistics
    rank_zero_only = True
    saved_attributes = ("_newest",)
    phase = "snapshot"

    policy: Any
    env: Any = None
    run_dir: Any = None
    _: KW_ONLY
    every: Every | None = None
    snapshots: int | None = None
    policy_fn: Callable[[int, Any], object] | None = None
    keep: Retention | None = None
    episodes: int = EPISODES
    seed: int = SEED
    env_kwargs: Mapping[str, Any] | None = None
    frame_skip: int = 1
    categorical_actions: bool = True
    groups: Mapping[str, Sequence[str]] | None = None
    report: bool = True

    def __post_init__(self) -> None:
        if (self.every is None) == (self.snapshots is None):
            raise ConfigError(
                f"PolicySnapshot({self.every!r}, snapshots={self.snapshots}): give exactly one."
            )
        if self.snapshots is not None:
            check_count("snapshots", self.snapshots, least=2)
        check_count("episodes", self.episodes, least=0)
        check_count("seed", self.seed, least=0)
        if (self.env is None or self.run_dir is None) and self.policy_fn is None:
            raise ConfigError(
                "PolicySnapshot needs env and run_dir to save snapshots, or a policy_fn to call."
            )
        self.run_dir = None if self.run_dir is None or self.env is None else RunDir(self.run_dir)
        self.is_saved = self.run_dir is None  # else the saved snapshots are the state
        if self.keep is not None:
            best_of(self.keep)  # raises ConfigError unless it is a retention policy
        self._recorder: PolicyRecorder | None = None
        self._evaluator: Evaluator | None = None
        self._cadence: SpreadCadence | None = None
        self._newest = -1  # frames of the newest snapshot
        self._ended_well = False

    @classmethod
    def of(cls, trainer: Loop, run_dir: RunDir | None = None, **options: Any) -> PolicySnapshot:
        """Take snapshots of the policy of a trainer's first `Evaluate` hook.

        One with a collector counts if its environments are tensors.

        Args:
            trainer: The trainer.
            run_dir: The run's directory; ``None`` to save nothing.
            **options: Other arguments of `PolicySnapshot`.

        Raises:
            ConfigError: If there is no such hook.
        """
        hooks = [hook for hook in trainer.registry.modules.values() if isinstance(hook, Evaluate)]
        if not hooks:
            raise ConfigError(
                "snapshots need an Evaluate hook: set eval_episodes above 0. The policy of a "
                "simulator that is built already is saved by PolicySnapshot(policy, simulator, "
                "run_dir, every=...)."
            )
        tensors = [hook for hook in hooks if not isinstance(hook.env, str) and is_world(hook.env)]
        for evaluate in hooks:
            if run_dir is None or evaluate.collector is None or evaluate in tensors:
                break
        else:
            raise ConfigError(
                "snapshots act in one Gymnasium environment, and this policy is evaluated in "
                "others, by a collector: leave them out."
            )
        env, env_kwargs = evaluate.env, evaluate.env_kwargs
        if evaluate.clip_actions:
            env, env_kwargs = Wrapped(clipped, env, env_kwargs), None
        return cls(
            evaluate.policy,
            env,
            run_dir,
            env_kwargs=env_kwargs,
            # A step of tensors is one action, however many frames it counts.
            frame_skip=1 if evaluate in tensors else evaluate.frame_skip or 1,
            groups=evaluate.groups,
            **options,
        )

    def __call__(self, batch: object) -> None:
        """Take a snapshot if due."""
        if self._cadence is None or self._cadence.due(self.trainer.progress.frames, self._newest):
            self.snapshot()

    def snapshot(self) -> None:
        """Take a snapshot of the current policy."""
        progress = self.trainer.progress
        self._newest = progress.frames
        with undisturbed():
            if self.policy_fn is not None:
                self.policy_fn(progress.frames, self.policy)
            if self._recorder is not None:
                keep = self.keep
                if keep is None and self._cadence is not None:
                    keep = self._cadence.keep(self._newest)
                # The seconds of the progress are those before this batch.
                since = perf_counter() - self.trainer.timing.lap_start if progress.batches else 0.0
                self._recorder.save(replace(progress, seconds=progress.seconds + since), keep)
                if self._evaluator is not None:
                    self._evaluator.start()

    def on_train_start(self, trainer: Loop) -> None:
        """Take the first snapshot; a resumed run already has it."""
        with undisturbed():
            self._open(trainer)
        if self._recorder is not None:
            self._newest = self._recorder.resume(trainer.progress.frames)
        if self._newest < 0:
            self.snapshot()

    def _open(self, trainer: Loop) -> None:
        from ..policies import PolicyRecorder
        from ..policies.policy_files import DIRECTORY

        if self.snapshots is not None:
            self._cadence = SpreadCadence(self.snapshots, trainer.total_for("snapshots="))
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
        environment = self._recorder.environment
        if self.episodes and environment.reason is None:
            self._evaluator = Evaluator(self.run_dir.path, self.seed, self.episodes, environment)
        elif self.episodes and self.report:
            reason = printable(environment.reason)
            print(f"the policies are saved, but cannot be played by themselves: {reason}")

    def on_train_end(self, trainer: Loop) -> None:
        """Take the last snapshot, and delete those that an early end would have needed."""
        if self._newest != trainer.progress.frames:
            self.snapshot()
        self._ended_well = trainer.control.signal is None
        is_spread = self._cadence is not None and self.keep is None
        if self._recorder is not None and self._ended_well and is_spread:
            self._recorder.prune(self._cadence.final)  # type: ignore[union-attr]

    def close(self) -> None:
        """Wait for evaluations, if the run ended well; a resumed one may have left some."""
        has_ended = self.is_registered and self.trainer.control.status in ENDED
        if has_ended and self._recorder is None:  # nothing was trained
            with undisturbed():
                self._open(self.trainer)
            self._ended_well = True
        if self._evaluator is not None:
            self._evaluator.finish(wait=self._ended_well, report=self.report)
        if self._recorder is not None and self._ended_well and self.keep is not None:
            self._recorder.prune(self.keep)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_recorder": None, "_evaluator": None}


# -- Evenly spaced policies of a run of unknown length.

_HALVINGS = 6


class SpreadCadence:
    """Decides when to save, so that a run of any length has about ``n`` evenly spaced policies.

    A complete run has them at multiples of ``total_frames / (n - 1)``. For a run that ends early,
    the spacing starts smaller, and doubles each time that it would give more than twice as many.
    The ratio of any two spacings is a power of two, so policies kept at one spacing fit the next.

    Args:
        n: Number of policies, at least 2.
        total_frames: Environment frames of a complete run.
    """

    def __init__(self, n: int, total_frames: int) -> None:
        self.n = n
        self.final = Spread(n)
        self._total = total_frames

    def spacing(self, frames: int) -> float:
        """Return the frames between two policies at this point of the run."""
        halvings = math.floor(math.log2(max(2 * self._total / max(frames, 1), 1)))
        return self._total / (self.n - 1) / 2 ** min(halvings, _HALVINGS)

    def due(self, frames: int, newest: int) -> bool:
        """Whether a multiple of the spacing lies between the newest policy and ``frames``."""
        spacing = self.spacing(frames)
        return frames // spacing > newest // spacing

    def keep(self, frames: int) -> Retention:
        """Return the retention during the run."""
        return EveryFrames(self.spacing(frames)) | Last(1)


# -- `Evaluator`: a process of lowest priority that evaluates a run's policies.


class Evaluator:
    """Runs ``python -m hooktrainer.policies.evaluation RUN`` while policies lack an evaluation.

    The process ends when all are evaluated, or with its parent.

    Args:
        run: The run's directory.
        seed: Seed of the episodes.
        episodes: Number of episodes.
        environment: The run's environment, which is trusted; any other must need no code.
    """

    def __init__(self, run: Path, seed: int, episodes: int, environment: Environment) -> None:
        self._run = run
        self._log = run / "policies" / ".evaluate.log"
        self._options = [str(seed), str(episodes), json.dumps(environment.encode())]
        self._hint = environment.option
        self._program: ChildProgram | None = None
        self._is_awaited = False

    def start(self) -> None:
        """Start a process unless one is running."""
        if self._program is not None and self._program.code is None:
            return
        self._close()
        paths = [path or os.getcwd() for path in sys.path]
        self._log.unlink(missing_ok=True)  # it may be a link
        with self._log.open("xb") as log:
            self._program = ChildProgram(
                ["-m", "hooktrainer.policies.evaluation", str(self._run), *self._options],
                stdout=subprocess.DEVNULL,
                stderr=log,
                environ={
                    "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
                    "OMP_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                },
            )
        if not self._is_awaited:
            os.setpriority(os.PRIO_PROCESS, self._program.pid, 19)

    def finish(self, *, wait: bool, report: bool) -> None:
        """Evaluate the remaining policies, until Ctrl-C, or end the process at once.

        Args:
            wait: Whether to wait.
            report: Whether to print the progress.
        """
        try:
            if wait:
                with interruptible():
                    self._evaluate_remaining(report)
        except KeyboardInterrupt:
            command = f"hooktrainer policies evaluate {shell_word(self._run)}{self._hint}"
            print(f"left; {command} plays the rest.")
        finally:
            self._close()

    def _evaluate_remaining(self, report: bool) -> None:
        left = self._remaining()
        if left and report:
            what = plural(left, "policy", "policies")
            print(f"playing {what} of {printable(self._run)}; Ctrl-C leaves the rest", flush=True)
        self._raise_priority()
        for _ in range(2):  # the first program may have begun before the last policy was saved
            if left:
                self.start()
                assert self._program is not None
                self._program.wait()
                left = self._remaining()
        if not report:
            return
        policies = list_policies(self._run)
        best = best_policy(policies)
        count = plural(len(policies), "policy", "policies")
        line = f"{count} in {printable(self._run / 'policies')}"
        if best is not None:
            line += f" · best: return {best.mean:.1f} at {best.frames:,} frames"
        print(f"{line} · look: hooktrainer gallery {shell_word(self._run)}{self._hint}")
        if left:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["unknown"]
            what = plural(left, "policy", "policies")
            print(f"{what} could not be played: {printable(lines[-1])}")

    def _raise_priority(self) -> None:
        """Evaluate at the priority of this process, since the lowest waits while cores are busy."""
        self._is_awaited = True
        if self._program is None or self._program.code is not None:
            return
        own = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            os.setpriority(os.PRIO_PROCESS, self._program.pid, own)
        except PermissionError:  # which most users lack; another process takes over
            self._close()

    def _remaining(self) -> int:
        return sum(saved.evaluation is None for saved in list_policies(self._run))

    def _close(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close(3.0)  # seconds until it is killed
