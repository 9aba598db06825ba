"""`Sweep`: a hyperparameter search by any number of processes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..algorithms import Algorithm
from ..algorithms.seed_runs import SeedResult, train_runs
from ..base.plain import to_plain
from ..errors import ConfigError
from ..run.config import Mark, marked
from ..store.lookup import SWEEP_FILE
from .ledger import Claim, Ledger, SweepOptions
from .space import SearchSpace
from .storage import in_turn
from .trial_runs import Evaluations, TrialRuns, watched

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_FINALS = "finals"
_FAILURES = 3  # of the first trials, after which a sweep ends


class Sweep:
    """A search for the settings of an algorithm.

    Any number of processes and machines may work on it: they share its storage. The trials of a
    killed process are continued by another.

    Args:
        algorithm: The fixed fields, and the defaults of the searched ones.
        options: The options of the sweep.
        fixed: Fields that are not searched.
        space: Candidates by field, in place of the field's own; see `SearchSpace.of`.

    Attributes:
        space: The search space.
        seeds: The seeds of every trial, which reports do not count.

    Raises:
        ConfigError: If an option is invalid, or the sweep was begun with other settings.

    Examples:
        >>> sweep = Sweep(PPO(env="CartPole-v1", total_frames=20_000), SweepOptions(run_dir="out"))
        >>> sweep.run()
        >>> sweep.best.params
    """

    def __init__(
        self,
        algorithm: Algorithm,
        options: SweepOptions,
        *,
        fixed: Collection[str] = (),
        space: Mapping[str, Any] | None = None,
    ) -> None:
        _check_algorithm(algorithm)
        self.algorithm = algorithm
        self.options = options
        self.fixed = frozenset(fixed)
        self.place = Path(options.run_dir)
        self.space = SearchSpace.of(algorithm, fixed, space)
        self.seeds = options.tuning_seeds()
        self.place.mkdir(parents=True, exist_ok=True)
        with in_turn(self.place / SWEEP_FILE):  # one process at a time
            name = f"{algorithm.name()} {algorithm.as_dict()['env']}"
            steps = algorithm.eval_interval, algorithm.total_frames
            self._ledger = Ledger(options, name, self._settings(), self.space, steps)

    @property
    def trials(self) -> list[FrozenTrial]:
        """Optuna's trials that count, by number."""
        return self._ledger.counted

    @property
    def elsewhere(self) -> list[FrozenTrial]:
        """The running trials of other processes."""
        return self._ledger.elsewhere

    @property
    def best(self) -> FrozenTrial | None:
        """The completed trial with the highest value."""
        return max(self._done(), key=lambda one: one.value or 0.0, default=None)

    @property
    def finalists(self) -> list[FrozenTrial]:
        """The best completed trials, the best first."""
        done = self._done()
        done.sort(key=lambda one: (-(one.value or 0.0), one.number))
        return done[: self.options.most_finalists]

    @property
    def finals(self) -> Mapping[int, float | None]:
        """Values of the finalists over all seeds by number, ``None`` for a failed one."""
        known = self.study.user_attrs.get(_FINALS, {})
        return {int(number): value for number, value in known.items() if number.isdecimal()}

    @property
    def winner(self) -> FrozenTrial | None:
        """The finalist with the highest value; without finals, the best trial."""
        known, finalists = self.finals, self.finalists
        if len(finalists) < 2 or not all(one.number in known for one in finalists):
            return self.best
        reached = {n: v for n, v in known.items() if v is not None and math.isfinite(v)}
        return max(finalists, key=lambda one: reached.get(one.number, -math.inf))

    def _done(self) -> list[FrozenTrial]:
        """The completed trials."""
        return [one for one in self.trials if one.state.name == "COMPLETE"]

    def note_finals(self, values: Mapping[int, float | None]) -> None:
        """Record the values of finalists."""
        kept = {str(number): value for number, value in {**self.finals, **values}.items()}
        self.study.set_user_attr(_FINALS, kept)

    @property
    def study(self) -> Any:
        """The `optuna.study.Study`."""
        return self._ledger.study

    def algorithm_of(self, trial: FrozenTrial) -> Algorithm:
        """The run with the settings of a trial."""
        return replace(self.algorithm, **self.space.settings(trial.params))

    def run(self, watch: Callable[[FrozenTrial], object] = lambda trial: None) -> None:
        """Train trials until the sweep is complete.

        Args:
            watch: Called with each trial that this process has ended.

        Raises:
            ConfigError: If the first runs cannot be made.
            SystemExit: As `Loop.train`, after a signal; the next start continues.
        """
        parallel = 1 if self.options.cpu_second else self.options.parallel
        while batch := self._batch(parallel):
            self._train(batch)
            for runs in sorted(batch, key=lambda one: one.failure is not None):
                self._finish(runs)
                watch(self._ledger.read(runs.claim.trial.number))

    def close(self) -> None:
        """Release trials that are not done."""
        self._ledger.close()

    def _batch(self, parallel: int) -> list[TrialRuns]:
        claims: list[Claim] = []
        while len(claims) < parallel and (claim := self._ledger.take()):
            claims.append(claim)
        options = self.options
        return [
            TrialRuns(
                claim,
                replace(self.algorithm, **self.space.settings(claim.trial.params), resume="latest"),
                self.seeds,
                score=options.objective,
                cpu_second=options.cpu_second,
            )
            for claim in claims
        ]

    def _train(self, trials: Sequence[TrialRuns]) -> None:
        """Train trials, each seed in its own process."""
        places = [(runs, seed) for runs in trials for seed in self.seeds]
        for runs in trials:
            runs.group = trials

        def end(results: Mapping[int, SeedResult]) -> None:
            for place in sorted(results):
                places[place][0].end(results[place])

        def meet(
            reports: Mapping[int, Evaluations], results: Mapping[int, SeedResult]
        ) -> dict[int, str | None]:
            end(results)
            for place, report in reports.items():
                places[place][0].is_training |= report.is_new
            for place in sorted(reports):
                runs, seed = places[place]
                runs.note(seed, reports[place])
            return {place: places[place][0].stops for place in reports}

        numbers = ", ".join(str(runs.claim.trial.number) for runs in trials)
        try:
            results = train_runs(
                [run for runs in trials for run in runs.runs],
                keep=True,
                progress_bar=self.algorithm.progress_bar,
                desc=f"trial {numbers}",
                prepare=watched,
                meet=meet,
            )
            end(dict(enumerate(results)))
        finally:
            for runs in trials:
                runs.spend()

    def _finish(self, runs: TrialRuns) -> None:
        claim, value, frames = runs.claim, runs.value(), runs.frames
        claim.trial.set_user_attr("frames", frames)
        if runs.failure is None:
            self._ledger.finish(claim, value, pruned=runs.pruned)
            return
        why = f"{type(runs.failure).__name__}: {runs.failure}"
        if isinstance(runs.failure, ConfigError) and not frames and self._is_hopeless(claim):
            self._ledger.give_up(why)
            raise runs.failure
        claim.trial.set_user_attr("failure", why[:500])
        self._ledger.finish(claim, None)

    def _is_hopeless(self, claim: Claim) -> bool:
        """Whether the fixed settings fail, not those of a trial."""
        trials = self.trials
        if any(one.intermediate_values for one in trials):
            return False
        failed = sum(one.state.name == "FAIL" for one in trials)
        return claim.trial.params == self.space.defaults() or failed >= _FAILURES

    def _settings(self) -> dict[str, Any]:
        """Return the settings that must be equal in all processes."""
        free = {*marked(type(self.algorithm), Mark.MEANS, Mark.AMONG_SEEDS), *self.space.candidates}
        settings = {
            "algorithm": self.algorithm.name(),
            **{n: value for n, value in self.algorithm.as_dict().items() if n not in free},
            "space": self.space.as_dict(),
            "seeds": self.options.seeds,
            "objective": self.options.objective,
            "cpu_second": self.options.cpu_second,
            "seed": self.options.seed,
        }
        return dict(json.loads(json.dumps(to_plain(settings))))


def _check_algorithm(algorithm: Algorithm) -> None:
    """Raise ConfigError if the algorithm sets an option that the sweep sets."""
    name = algorithm.name()
    if algorithm.seeds is not None:
        raise ConfigError(f"{name}: seeds={algorithm.seeds}: give the sweep the number of seeds.")
    for field in ("workers", "engine", "collectors", "resume", "fork", "loggers", "run_dir"):
        if value := getattr(algorithm, field):
            raise ConfigError(
                f"{name}: {field}={value!r} is not for a sweep: leave it out. Several processes "
                "work on a sweep where each is started with the same command."
            )
    if algorithm.logger and "csv" not in algorithm.logger:
        raise ConfigError(
            f"{name}: logger={list(algorithm.logger)!r}: a trial that is resumed reads its "
            "evaluations from metrics.csv: name csv as well."
        )
    if not algorithm.eval_episodes:
        raise ConfigError(f"{name}: eval_episodes=0: a sweep compares evaluations: pass 1 or more.")
