"""`TrialRuns`: the evaluations of a trial's runs, and its pruning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDictBase

from ..algorithms import Algorithm
from ..algorithms.seed_runs import SeedResult, run_of
from ..hooks.evaluate import Evaluate
from ..loop.hook import LATE, TrainerHookBase
from ..show.curves import read_curves
from ..statistics import SCORES, Curve
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .ledger import Ledger, Trial
from .options import SweepOptions

if TYPE_CHECKING:
    from ..loop.loop import Loop

METRIC = "eval/return"


Report = tuple[Mapping[int, float], bool, float]
"""Of a run's process: returns by the frames of evaluations, whether it ends here, CPU seconds."""


class TrialRuns:
    """The runs of a trial, one per seed.

    Once all seeds have an evaluation, the mean of their scores up to its frames is reported. A seed
    that has ended keeps its last value.

    Args:
        trial: The trial.
        algorithm: Its settings.
        options: The options of the sweep.

    Attributes:
        runs: One a seed.
    """

    def __init__(
        self, trial: Trial, algorithm: Algorithm, options: SweepOptions, place: Path
    ) -> None:
        self.trial, self.algorithm, self._options = trial, algorithm, options
        self.seeds = options.tuning_seeds()
        self.runs = [run_of(algorithm, seed, place) for seed in self.seeds]
        self._curves: dict[int, dict[int, float]] = {seed: {} for seed in self.seeds}
        self._over: set[int] = set()  # seeds whose runs have ended
        self._results: dict[int, SeedResult] = {}
        self._spent = dict.fromkeys(self.seeds, 0.0)  # CPU seconds of their processes

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
        if self.trial.state != "pruned":
            return None
        return f"pruned: other trials had scored more by {self.latest:,} frames"

    @property
    def latest(self) -> int:
        """Frames of the latest report; 0 if there is none."""
        return max(self.trial.reports, default=0)

    @property
    def is_done(self) -> bool:
        """Whether it is not to be pruned any more."""
        return self.stops is not None or len(self._over) == len(self.seeds)

    def end(self, result: SeedResult) -> None:
        """Record the end of a seed's run; a second call does nothing."""
        if result.seed not in self._results:
            self._results[result.seed] = result
            self._over.add(result.seed)
            self.trial.frames = sum(one.frames for one in self._results.values())
            self._spend(result.seed, result.cpu_seconds)

    def _spend(self, seed: int, cpu_seconds: float) -> None:
        # Also what a run has spent before it is killed.
        self.trial.cpu_seconds += max(0.0, cpu_seconds - self._spent[seed])
        self._spent[seed] = cpu_seconds

    def note(self, seed: int, returns: Mapping[int, float], ends: bool, cpu_seconds: float) -> None:
        """Record a seed's evaluations, whether its run ends, and what it has spent."""
        self._spend(seed, cpu_seconds)
        self._curves[seed] |= {f: value for f, value in returns.items() if math.isfinite(value)}
        if ends:
            self._over.add(seed)

    def report(self) -> None:
        """Report every evaluation that all seeds have, at the frames at which it was due."""
        if self.stops is not None:
            return
        interval, total = self.algorithm.eval_interval, self.algorithm.total_frames
        for frames in sorted(set().union(*self._curves.values())):
            if all(self._has(seed, frames) for seed in self.seeds):
                step = total if frames >= total else frames // interval * interval
                self.trial.reports.setdefault(step, self._mean_up_to(frames))
        if self.trial.reports and len(self._over) == len(self.seeds):
            # The kept value is what other trials are compared with.
            for step in (*range(interval, total, interval), total):
                if step > self.latest:
                    self.trial.reports[step] = self._mean_up_to(step)

    def _has(self, seed: int, frames: int) -> bool:
        own = self._curves[seed]
        return bool(own) and (seed in self._over or max(own) >= frames)

    def value(self) -> float | None:
        """Return the trial's value; ``None`` if a seed failed or was never evaluated."""
        if self.failure is not None or not all(self._curves.values()):
            return None
        self.report()
        value = self._mean_up_to(self.algorithm.total_frames)
        value -= self._options.cpu_second * self.trial.cpu_seconds / len(self.seeds)
        return value if math.isfinite(value) else None

    def _mean_up_to(self, frames: int) -> float:
        score = SCORES[self._options.objective]
        scores = [score(Curve.of(own.items()), frames) for own in self._curves.values()]
        return float(np.mean(scores))


def prune(trials: Sequence[TrialRuns], ledger: Ledger) -> None:
    """Prune the worse of concurrent trials when all have reached the same point."""
    for runs in trials:
        step = runs.latest
        if runs.is_done or not 0 < step < runs.algorithm.total_frames:
            continue
        if all(other.is_done or other.latest >= step for other in trials):
            ledger.prune(runs.trial)


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
    why = ask((known, trainer.has_ended, time.process_time()))
    if why is not None and not trainer.has_ended:
        trainer.request_stop(why, status="pruned")
    return trainer


class WatchEvaluations(TrainerHookBase):
    """Reports the evaluations of a run, and stops it if the answer is a reason.

    Args:
        ask: Sends a report and returns the answer.
    """

    at = "post_steps_log"
    priority = LATE  # after `Evaluate`
    is_saved = False

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask
        self._noted = -1

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
            why = self._ask(({frames: value}, ends, time.process_time()))
            if why is not None and self.trainer.control.status == "running":
                self.trainer.request_stop(why, status="pruned")


def _evaluations(trainer: Any) -> list[Evaluate]:
    return [
        hook
        for hook in trainer.registry.hooks()
        if isinstance(hook, Evaluate) and f"{hook.group}/return" == METRIC
    ]
