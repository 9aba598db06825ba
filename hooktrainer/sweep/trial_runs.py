"""`TrialRuns`: the evaluations of a trial's runs, and its pruning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDictBase

from ..algorithms import Algorithm
from ..algorithms.seed_runs import SeedResult, run_of
from ..errors import ConfigError
from ..hooks.evaluate import Evaluate
from ..loop.hook import LATE, TrainerHookBase
from ..show.curves import read_curves
from ..statistics import SCORES, Curve
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .ledger import PRUNED, Claim

if TYPE_CHECKING:
    from ..loop.loop import Loop

METRIC = "eval/return"


@dataclass(frozen=True)
class Evaluations:
    """A report of a run's process.

    Attributes:
        by_frames: Mean returns by frames of the evaluation.
        ends: Whether the run ends here.
        is_new: Whether this process has evaluated them, not an earlier one.
        cpu_seconds: CPU seconds of the process.
    """

    by_frames: Mapping[int, float]
    ends: bool
    is_new: bool
    cpu_seconds: float


@dataclass(eq=False)
class TrialRuns:
    """The runs of a trial.

    Once all seeds have an evaluation, the mean of their scores up to its frames is reported. A seed
    that has ended keeps its last value.

    Attributes:
        score: The score of a seed's curve, a name of `SCORES`.
        cpu_second: What a CPU second of a seed subtracts from its score.
        runs: One a seed.
        pruned: Whether the trial was ended early.
        group: The trials that train at the same time, itself included.
        is_training: Whether a seed has collected anything in this process.
    """

    claim: Claim
    algorithm: Algorithm
    seeds: Sequence[int]
    score: str
    cpu_second: float = 0.0

    def __post_init__(self) -> None:
        self.runs = [run_of(self.algorithm, seed, self.claim.place) for seed in self.seeds]
        self.group: Sequence[TrialRuns] = (self,)
        self.is_training = False
        self._curves: dict[int, dict[int, float]] = {seed: {} for seed in self.seeds}
        self._over: set[int] = set()  # seeds whose runs have ended before their last frame
        self._results: dict[int, SeedResult] = {}
        self._cpu: dict[int, float] = {}  # seconds by seed
        trial = self.claim.trial
        known = trial.storage.get_trial(trial._trial_id)
        self._reported = set(known.intermediate_values)  # by the frames at which they were due
        self.pruned = PRUNED in known.user_attrs
        self._cpu_before = float(known.user_attrs.get("cpu_seconds", 0.0))

    @property
    def frames(self) -> int:
        """Frames collected by all seeds that have ended, those before a resume included."""
        return sum(result.frames for result in self._results.values())

    @property
    def failure(self) -> Exception | None:
        """The first error of a run."""
        errors = (result.error for result in self._results.values())
        return next((error for error in errors if error is not None), None)

    @property
    def stops(self) -> str | None:
        """Why its runs must stop; ``None`` if they continue."""
        if self.failure is not None:
            return "another seed of the trial has failed"
        if not self.pruned:
            return None
        at = max(self._reported, default=0)
        return f"{PRUNED}: other trials had scored more by {at:,} frames"

    def end(self, result: SeedResult) -> None:
        """Record the end of a seed's run."""
        if result.seed not in self._results:
            self._results[result.seed] = result
            self._cpu[result.seed] = result.cpu_seconds or self._cpu.get(result.seed, 0.0)
            self._over.add(result.seed)

    def spend(self) -> None:
        """Record the CPU seconds of its runs."""
        self._cpu_before += sum(self._cpu.values())
        self._cpu.clear()
        self.claim.trial.set_user_attr("cpu_seconds", self._cpu_before)

    def note(self, seed: int, report: Evaluations) -> None:
        """Record a seed's report, and prune the trial if it is behind."""
        self._curves[seed] |= report.by_frames
        self._cpu[seed] = report.cpu_seconds
        if report.ends:
            self._over.add(seed)
        if self.pruned or self.failure is not None or not report.is_new:
            return
        for at in sorted(set().union(*self._curves.values())):
            if all(self._knows(seed, at) for seed in self.seeds):
                self._report(at)
        if len(self._over) == len(self.seeds):
            self._report_the_rest()

    def _knows(self, seed: int, frames: int) -> bool:
        """Return whether a seed has a score up to some frames."""
        own = self._curves[seed]
        return bool(own) and (seed in self._over or max(own) >= frames)

    def value(self) -> float | None:
        """Return the trial's value; ``None`` if a seed failed or was never evaluated."""
        if self.failure is not None or not all(self._curves.values()):
            return None
        self._report_the_rest()
        value = self._mean_up_to(self.algorithm.total_frames)
        value -= self.cpu_second * self._cpu_before / len(self.seeds)
        return value if math.isfinite(value) else None

    def _report(self, frames: int) -> None:
        """Report an evaluation at the frames at which it was due."""
        trial, step = self.claim.trial, self._due(frames)
        if step in self._reported:
            return
        self._reported.add(step)
        trial.report(self._mean_up_to(frames), step)
        # Prune only when all concurrent trials have reached this point.
        if all(one._has_passed(step) for one in self.group):
            for one in self.group:
                one._end_if_behind(step)

    def _has_passed(self, step: int) -> bool:
        """Return whether it has reported that evaluation, or never will."""
        silent = self.pruned or self.failure is not None or not self.is_training
        return silent or max(self._reported, default=0) >= step

    def _end_if_behind(self, step: int) -> None:
        """Prune the trial if that is its latest evaluation and it is behind."""
        over = len(self._over) == len(self.seeds) or step >= self.algorithm.total_frames
        if self.pruned or over or step != max(self._reported, default=None):
            return
        if self.claim.trial.should_prune():
            self.pruned = True
            self.claim.trial.set_user_attr(PRUNED, True)  # the others may go on for long

    def _due(self, frames: int) -> int:
        interval, total = self.algorithm.eval_interval, self.algorithm.total_frames
        return total if frames >= total else frames // interval * interval

    def _report_the_rest(self) -> None:
        """Report the kept value at the remaining steps, for comparison with other trials."""
        interval, total = self.algorithm.eval_interval, self.algorithm.total_frames
        for step in (*range(interval, total, interval), total):
            if not self.pruned and step > max(self._reported, default=total):
                self._reported.add(step)
                self.claim.trial.report(self._mean_up_to(step), step)

    def _mean_up_to(self, frames: int) -> float:
        score = SCORES[self.score]
        scores = [score(Curve.of(own.items()), frames) for own in self._curves.values()]
        return float(np.mean(scores))


def watched(run: Algorithm, ask: Callable[[Any], Any]) -> Trainer:
    """Return a trainer that reports its evaluations; called in the training process."""
    watch = WatchEvaluations(ask)
    trainer = replace(run, hooks=(*run.hooks, watch)).built(keep=True)
    known: dict[int, float] = {}
    last = max((hook.evaluated_at for hook in _evaluations(trainer)), default=-1)
    if last >= 0 and run.run_dir is not None:  # what came after it is repeated
        saved = read_curves(RunDir(run.run_dir), [METRIC]).get(METRIC)
        if saved is not None:
            pairs = zip(saved.frames.tolist(), saved.values.tolist(), strict=True)
            known = {frames: value for frames, value in pairs if frames <= last}
    why = ask(Evaluations(known, trainer.has_ended, False, time.process_time()))
    if why is not None and not trainer.has_ended:
        trainer.request_stop(why, status="pruned")
    return trainer


class WatchEvaluations(TrainerHookBase):
    """Reports the evaluations of a run, and stops it if the answer is a reason.

    Args:
        ask: Sends a report and returns the answer.
    """

    is_saved = False

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask
        self._noted = -1

    def register(self, trainer: Loop, name: str = "watch_evaluations") -> None:
        """Register after `Evaluate`, or raise ConfigError if there is none."""
        if not _evaluations(trainer):
            raise ConfigError(
                "a sweep compares evaluations, and there are none: pass eval_episodes of 1 or more."
            )
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self, priority=LATE)

    def __call__(self, batch: TensorDictBase) -> None:
        """Report a new evaluation."""
        control = self.trainer.control
        # A run ended by a signal continues when resumed.
        self._look(ends=control.stop_reason is not None and control.signal is None)

    def on_train_end(self, trainer: Loop) -> None:
        """Report the last evaluation, unless a signal ended the run."""
        if trainer.control.signal is None:
            self._look(ends=True)

    def _look(self, *, ends: bool) -> None:
        frames = self.trainer.collected_frames
        value = self.trainer.metrics.latest(METRIC)
        fresh = any(hook.evaluated_at == frames for hook in _evaluations(self.trainer))
        if fresh and value is not None and (self._noted < frames or ends):
            self._noted = frames
            why = self._ask(Evaluations({frames: value}, ends, True, time.process_time()))
            if why is not None and self.trainer.control.status == "running":
                self.trainer.request_stop(why, status="pruned")


def _evaluations(trainer: Any) -> list[Evaluate]:
    """Return the hooks that log the metric of sweeps."""
    return [
        hook
        for hook in trainer.registry.hooks()
        if isinstance(hook, Evaluate) and f"{hook.group}/return" == METRIC
    ]
