"""Save the policy as it learns, and show it to a function: what did it learn, and when?"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count
from ..base.child_program import PACKAGE_ROOT, ChildProgram
from ..base.words import plural, printable, shell_word
from ..collect import AgentsCollector
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase
from ..policies.environment import Environment
from ..policies.saved import EPISODES, SEED, best_policy, check_not_negative, list_policies
from ..store import EveryFrames, Last, Retention, Spread
from ..store.retention import as_retention
from ..store.rng import undisturbed
from ..store.run_dir import RunDir
from .evaluate import Evaluate

if TYPE_CHECKING:
    from ..loop.loop import Loop
    from ..policies.recorder import PolicyRecorder


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
        from ..policies.policy_files import DIRECTORY
        from ..policies.recorder import PolicyRecorder
        from .policy_snapshot import Evaluator, SpreadCadence

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


# -- Some policies spread evenly over a run of unknown length: when to save, and what to keep.

_HALVINGS = 6


class SpreadCadence:
    """When a policy is to be saved, so that a run has about ``n`` evenly spaced, however long.

    A run that goes on to its end has them at multiples of ``total_frames / (n - 1)``. One that ends
    early, because it is solved, must have some, too: so the spacing is smaller at first, and
    doubles each time that it would give more than twice as many. It is a fraction of the whole by a
    power of two, so those kept at one spacing are also right for the next.

    Args:
        n: How many.
        total_frames: Environment frames of a whole run.

    Raises:
        ConfigError: If ``n`` is below 2.
    """

    def __init__(self, n: int, total_frames: int) -> None:
        self.n = n
        self.final = Spread(n)
        self._total = total_frames
        self._look_at = 0.0

    def spacing(self, frames: int) -> float:
        """Frames between two policies when the run has come so far."""
        halvings = math.floor(math.log2(max(2 * self._total / max(frames, 1), 1)))
        return self._total / (self.n - 1) / 2 ** min(halvings, _HALVINGS)

    def due(self, frames: int, newest: int) -> bool:
        """Whether a multiple of the spacing lies behind the newest policy, at ``frames``."""
        if frames < self._look_at:
            return False
        spacing = self.spacing(frames)
        crossed = frames // spacing > newest // spacing
        self._look_at = 0 if crossed else (frames // spacing + 1) * spacing
        return crossed

    def keep(self, frames: int) -> Retention:
        """What to keep in the course of the run."""
        return EveryFrames(self.spacing(frames)) | Last(1)


# -- `Evaluator`: the process of lowest priority that plays the policies of a run in training.

_GRACE = 3.0  # seconds that the process has to end by itself


class Evaluator:
    """Starts ``python -m hooktrainer.policies.evaluate_run RUN`` when there is something to play.

    The process plays all policies that were not played yet and ends. It is started again when there
    is another one. It ends at once when this process ends.

    Args:
        run: The run's directory.
        seed: Seed of the episodes.
        episodes: How many.
        environment: The run's own, which is trusted; another one is made only if it needs no code.
    """

    def __init__(
        self, run: Path, seed: int, episodes: int, environment: Environment | None = None
    ) -> None:
        self._run = run
        self._options = ["--seed", str(seed), "--episodes", str(episodes)]
        self._hint = ""
        if environment is not None:
            self._options += ["--own", json.dumps(environment.encode())]
            self._hint = " --trust" if environment.code else ""
        self._program: ChildProgram | None = None

    def look(self) -> None:
        """Start a process, unless one is at work."""
        if self._program is not None and self._program.code is None:
            return
        self._close()
        self._log().unlink(missing_ok=True)  # of another process, or a link
        with self._log().open("xb") as log:
            self._program = ChildProgram(
                "hooktrainer.policies.evaluate_run",
                str(self._run),
                *self._options,
                "--with-parent",
                environ=_environment(),
                nice=19,
                stderr=log,
            )

    def finish(self, *, wait: bool, report: bool) -> None:
        """Play what is left and wait for it; or end the process at once.

        Ctrl-C leaves the rest unplayed.

        Args:
            wait: Whether to wait.
            report: Whether to print what is done.
        """
        try:
            if wait:
                self._play_the_rest(report)
        except KeyboardInterrupt:
            command = f"hooktrainer policies evaluate {shell_word(self._run)}{self._hint}"
            print(f"left; {command} plays the rest.")
        finally:
            self._close()

    def _play_the_rest(self, report: bool) -> None:
        left = self._unplayed()
        if left and report:
            what = plural(left, "policy", "policies")
            print(f"playing {what} of {printable(self._run)}; Ctrl-C leaves the rest", flush=True)
        while left:
            self.look()
            assert self._program is not None
            failed = self._program.wait() != 0
            before, left = left, self._unplayed()
            if failed and left >= before:
                break
        if report:
            self._report(left)

    def _report(self, left: int) -> None:
        policies = list_policies(self._run)
        best = best_policy(policies)
        count = plural(len(policies), "policy", "policies")
        said = f"{count} in {printable(self._run / 'policies')}"
        if best is not None:
            said += f" · best: return {best.mean:.1f} at {best.frames:,} frames"
        print(f"{said} · look: hooktrainer gallery {shell_word(self._run)}{self._hint}")
        if left:
            lines = self._log().read_text(errors="replace").strip().splitlines()
            what = plural(left, "policy", "policies")
            print(f"{what} could not be played: {printable(lines[-1] if lines else 'unknown')}")

    def _unplayed(self) -> int:
        return sum(saved.evaluation is None for saved in list_policies(self._run))

    def _log(self) -> Path:
        return self._run / "policies" / ".evaluate.log"

    def _close(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close(_GRACE)


def _environment() -> dict[str, str]:
    """The variables of the process: one thread, no GPU, and the same modules as here."""
    paths = [path or os.getcwd() for path in sys.path]
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, str(PACKAGE_ROOT)])),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
