"""`TrialRuns`: the runs of one trial, a seed each, and what they report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDictBase

from ..algorithms import Algorithm
from ..algorithms.seed_runs import run_of
from ..errors import ConfigError
from ..hooks.evaluate import Evaluate
from ..loop.hook import TrainerHookBase
from ..loop.priorities import LATE
from ..show.curves import read_curves
from ..statistics import SCORES, Curve
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .ledger import PRUNED, Claim
from .meeting import Meeting

if TYPE_CHECKING:
    from ..loop.company import Company
    from ..loop.loop import Loop

METRIC = "eval/return"


class TrialRuns:
    """The runs of a trial.

    What is reported after an evaluation is the mean over the seeds of their scores up to its
    frames, as soon as all have them; a seed that has ended, its task solved, keeps its last value.

    Args:
        claim: The trial.
        algorithm: The run, with the trial's settings.
        seeds: Its seeds.
        score: What is made of a seed's curve, a name of `SCORES`.
        cpu_second: What a CPU second of a seed takes from its score.

    Attributes:
        trainers: One a seed, as far as they are made.
        failure: What has gone wrong, if anything has.
        pruned: Whether the trial was ended early.
        group: The trials that train beside it, itself included.
    """

    def __init__(
        self,
        claim: Claim,
        algorithm: Algorithm,
        seeds: Sequence[int],
        *,
        score: str,
        cpu_second: float = 0.0,
    ) -> None:
        self.claim = claim
        self.algorithm = algorithm
        self.trainers: list[Trainer] = []
        self.failure: Exception | None = None
        self.group: Sequence[TrialRuns] = (self,)
        self._seeds = seeds
        self._score = SCORES[score]
        self._cpu_second = cpu_second
        self._curves: dict[int, dict[int, float]] = {seed: {} for seed in seeds}
        self._over: set[int] = set()  # seeds whose runs have ended before their last frame
        self._begun_at = 0
        storage = claim.trial.storage
        known = storage.get_trial(claim.trial._trial_id)
        self._reported = set(known.intermediate_values)  # by the frames at which they were due
        self._told: set[int] = set()
        self.pruned = PRUNED in known.user_attrs
        self._cpu_before = float(known.user_attrs.get("cpu_seconds", 0.0))

    def made(self) -> Iterator[Trainer]:
        """Make the trainers one after another; none behind one that cannot be made."""
        try:
            for seed in self._seeds:
                run = run_of(self.algorithm, seed, self.claim.place)
                watch = WatchEvaluations(self, seed)
                run = replace(run, hooks=(*run.hooks, watch))
                trainer = run.built(keep=True)
                self.trainers.append(trainer)
                self._begun_at += trainer.collected_frames
                if trainer.has_ended:
                    self.take_up(seed, trainer)
                elif self.pruned:  # the process ended before this run did
                    trainer.request_stop("pruned before it was resumed", status="pruned")
                yield trainer
        except Exception as error:
            self.fail(error)

    @property
    def collected(self) -> int:
        """Frames that this process has collected for it."""
        return sum(trainer.collected_frames for trainer in self.trainers) - self._begun_at

    def fail(self, error: Exception) -> None:
        """Note what a seed has raised: without it there is no score, so the others end as well."""
        if self.failure is None:
            self.failure = error
            self._stop("another seed of the trial has failed")

    def spend(self, seconds: float) -> None:
        """Note the CPU seconds that its runs have taken in this process."""
        self.claim.trial.set_user_attr("cpu_seconds", self._cpu_before + seconds)
        self._cpu_before += seconds

    def take_up(self, seed: int, trainer: Loop) -> None:
        """Take up the evaluations that a run has made before it was resumed."""
        last = max((hook.evaluated_at for hook in _evaluations(trainer)), default=-1)
        saved = read_curves(RunDir(self.claim.place / f"seed{seed}"), [METRIC]).get(METRIC)
        if saved is not None:
            pairs = zip(saved.frames.tolist(), saved.values.tolist(), strict=True)
            self._curves[seed] = {frames: value for frames, value in pairs if frames <= last}
        if trainer.has_ended:
            self._over.add(seed)

    def note(self, seed: int, frames: int, value: float, *, ends: bool) -> None:
        """Note an evaluation of a seed, and end the trial if it promises nothing.

        Args:
            seed: The seed.
            frames: Of its run.
            value: The mean return.
            ends: Whether the run ends here.
        """
        self._curves[seed][frames] = value
        if ends:
            self._over.add(seed)
        if self.pruned or self.failure is not None:
            return
        for at in sorted(set().union(*self._curves.values()) - self._told):
            if all(self._knows(seed, at) for seed in self._seeds):
                self._report(at)
        if len(self._over) == len(self._seeds):
            self._report_the_rest()

    def _knows(self, seed: int, frames: int) -> bool:
        """Whether a seed has a score up to some frames."""
        own = self._curves[seed]
        return bool(own) and (seed in self._over or max(own) >= frames)

    def value(self) -> float | None:
        """What the trial has reached; ``None`` if a seed has failed, or was never evaluated."""
        if self.failure is not None or not all(self._curves.values()):
            return None
        self._report_the_rest()
        value = self._mean_up_to(self.algorithm.total_frames)
        value -= self._cpu_second * self._cpu_before / len(self._seeds)
        return value if math.isfinite(value) else None

    def _report(self, frames: int) -> None:
        """Report an evaluation, at the frames at which it was due: others are compared at these."""
        trial, step = self.claim.trial, self._due(frames)
        self._told.add(frames)
        if step in self._reported:
            return
        self._reported.add(step)
        trial.report(self._mean_up_to(frames), step)
        # None is ended before all have come as far: the last to report may be what others lack.
        if all(one._has_passed(step) for one in self.group):
            for one in self.group:
                one._end_if_behind(step)

    def _has_passed(self, step: int) -> bool:
        """Whether it has reported that evaluation, or will not."""
        silent = self.pruned or self.failure is not None or not self.collected
        return silent or max(self._reported, default=0) >= step

    def _end_if_behind(self, step: int) -> None:
        """End the trial if that is its latest evaluation, and it promises nothing."""
        over = len(self._over) == len(self._seeds) or step >= self.algorithm.total_frames
        if self.pruned or over or step != max(self._reported, default=None):
            return
        if self.claim.trial.should_prune():
            self.pruned = True
            self.claim.trial.set_user_attr(PRUNED, True)  # the others may go on for long
            self._stop(f"{PRUNED}: other trials had scored more by {step:,} frames")

    def _due(self, frames: int) -> int:
        interval, total = self.algorithm.eval_interval, self.algorithm.total_frames
        return total if frames >= total else frames // interval * interval

    def _report_the_rest(self) -> None:
        """Report what a trial keeps whose seeds have ended early: others are compared with it."""
        interval, total = self.algorithm.eval_interval, self.algorithm.total_frames
        for step in (*range(interval, total, interval), total):
            if not self.pruned and step > max(self._reported, default=total):
                self._reported.add(step)
                self.claim.trial.report(self._mean_up_to(step), step)

    def _mean_up_to(self, frames: int) -> float:
        scores = [self._score(Curve.of(own.items()), frames) for own in self._curves.values()]
        return float(np.mean(scores))

    def _stop(self, why: str) -> None:
        for trainer in self.trainers:
            if trainer.control.status == "running":
                trainer.request_stop(why, status="pruned")


class WatchEvaluations(TrainerHookBase):
    """Tells a trial of the evaluations of one of its seeds.

    Args:
        runs: The trial.
        seed: The seed.
    """

    is_saved = False

    def __init__(self, runs: TrialRuns, seed: int) -> None:
        self._runs, self._seed = runs, seed
        self._noted = -1
        self._company: Company | None = None

    def join(self, company: Company) -> None:
        """Wait for the others behind each evaluation: it may be the last of this run."""
        self._company = company

    def register(self, trainer: Loop, name: str = "watch_evaluations") -> None:
        """Register behind what evaluates.

        Raises:
            ConfigError: If nothing does.
        """
        if not _evaluations(trainer):
            raise ConfigError(
                "a sweep compares evaluations, and there are none: pass eval_episodes of 1 or more."
            )
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self, priority=LATE)

    def on_train_start(self, trainer: Loop) -> None:
        """Take up what a resumed run has behind it; its log is cut back to that by now."""
        if trainer.collected_frames:
            self._runs.take_up(self._seed, trainer)

    def __call__(self, batch: TensorDictBase) -> None:
        """Look whether there was an evaluation."""
        control = self.trainer.control
        # What a signal ends goes on when it is resumed.
        self._look(ends=control.stop_reason is not None and control.signal is None)
        if self._noted == self.trainer.collected_frames and self._company is not None:
            self._company.ask(self._company.server(Meeting, Meeting), None)

    def on_train_end(self, trainer: Loop) -> None:
        """Look at the last evaluation; that of a run that a signal ends is made again."""
        if trainer.control.signal is None:
            self._look(ends=True)

    def on_exception(self, trainer: Loop, exception: BaseException) -> None:
        """Have the trial fail."""
        if isinstance(exception, Exception):
            self._runs.fail(exception)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_company": None}

    def _look(self, *, ends: bool) -> None:
        frames = self.trainer.collected_frames
        value = self.trainer.metrics.latest(METRIC)
        fresh = any(hook.evaluated_at == frames for hook in _evaluations(self.trainer))
        if fresh and value is not None and (self._noted < frames or ends):
            self._noted = frames
            self._runs.note(self._seed, frames, value, ends=ends)


def _evaluations(trainer: Any) -> list[Evaluate]:
    """What evaluates the run's policy, by the name that trials are compared by."""
    return [
        hook
        for hook in trainer.registry.hooks()
        if isinstance(hook, Evaluate) and f"{hook.group}/return" == METRIC
    ]


def share_out(trials: Sequence[TrialRuns], seconds: float) -> None:
    """Share out the CPU seconds of trials that were computed together, by their frames."""
    total = sum(one.collected for one in trials)
    for one in trials:
        if total:
            one.spend(seconds * one.collected / total)
