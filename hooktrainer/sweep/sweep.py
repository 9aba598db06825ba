"""`Sweep`: a hyperparameter search by any number of processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..algorithms import Algorithm
from ..algorithms.seed_runs import SeedResult, train_runs
from ..base.plain import to_plain
from ..errors import ConfigError
from ..run.config import Mark, marked
from .ledger import Ledger, Trial
from .options import SweepOptions
from .space import SearchSpace
from .trial_runs import Report, TrialRuns, prune, watched

if TYPE_CHECKING:
    from optuna.study import Study


class Sweep:
    """A search for the settings of an algorithm.

    Any number of processes and machines may work on it: they share its directory. The trials of a
    killed process are continued by another.

    Args:
        algorithm: The fixed fields, and the defaults of the searched ones.
        options: The options of the sweep.
        fixed: Fields that are not searched.
        space: Candidates by field, in place of the field's own; see `SearchSpace.of`.

    Attributes:
        space: The search space.
        seeds: The seeds of every trial, which reports do not count.
        ledger: The trials.

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
        options.check()
        self.algorithm = algorithm
        self.options = options
        if options.run_dir is None:
            env = re.sub(r"[^\w.-]", "_", algorithm.trained_on)
            self.place = Path("runs", f"sweep_{algorithm.name()}_{env}")
        else:
            self.place = Path(options.run_dir)
        self.space = SearchSpace.of(algorithm, fixed, space)
        self.seeds = options.tuning_seeds()
        steps = algorithm.eval_interval, algorithm.total_frames
        self.ledger = Ledger(options, self.place, self._settings(), self.space, steps)

    @property
    def trials(self) -> list[Trial]:
        """The trials, by number."""
        return self.ledger.trials

    @property
    def best(self) -> Trial | None:
        """The completed trial with the highest value."""
        return next(iter(self._done()), None)

    @property
    def finalists(self) -> list[Trial]:
        """The best completed trials, the best first."""
        return self._done()[: self.options.most_finalists]

    @property
    def winner(self) -> Trial | None:
        """The finalist with the highest value; without finals, the best trial."""
        played = [one for one in self.finalists if one.final is not None]
        return max(played, key=lambda one: one.final or 0.0) if played else self.best

    def _done(self) -> list[Trial]:
        done = [one for one in self.trials if one.state == "complete"]
        return sorted(done, key=lambda one: (-(one.value or 0.0), one.number))

    @property
    def study(self) -> Study:
        """The trials as an `optuna.study.Study`, in memory."""
        return self.ledger.study(self.trials)

    def algorithm_of(self, trial: Trial) -> Algorithm:
        """Return the run with the settings of a trial."""
        return replace(self.algorithm, **self.space.settings(trial.params))

    def run(self, watch: Callable[[Trial], object] = lambda trial: None) -> None:
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
            for runs in batch:
                watch(runs.trial)

    def close(self) -> None:
        """Release trials that are not done."""
        self.ledger.close()

    def _batch(self, parallel: int) -> list[TrialRuns]:
        trials: list[Trial] = []
        while len(trials) < parallel and (trial := self.ledger.take()):
            trials.append(trial)
            if (trial.number + 1) % parallel == 0:
                break  # so that a killed sweep trains the same trials side by side
        return [
            TrialRuns(
                one,
                replace(self.algorithm_of(one), resume="latest"),
                self.options,
                self.ledger.place_of(one.number),
            )
            for one in trials
        ]

    def _train(self, trials: Sequence[TrialRuns]) -> None:
        places = [(runs, seed) for runs in trials for seed in self.seeds]

        def end(results: Mapping[int, SeedResult]) -> None:
            for place in sorted(results):
                places[place][0].end(results[place])

        def meet(
            reports: Mapping[int, Report], results: Mapping[int, SeedResult]
        ) -> dict[int, str | None]:
            end(results)
            for place, report in reports.items():
                runs, seed = places[place]
                runs.note(seed, *report)
            for runs in trials:
                runs.report()
            prune(trials, self.ledger)
            for runs in trials:
                self.ledger.save(runs.trial)
            return {place: places[place][0].stops for place in reports}

        numbers = ", ".join(str(runs.trial.number) for runs in trials)
        results = train_runs(
            [run for runs in trials for run in runs.runs],
            keep=True,
            progress_bar=self.algorithm.progress_bar,
            desc=f"trial {numbers}",
            prepare=watched,
            meet=meet,
        )
        end(dict(enumerate(results)))

    def _finish(self, runs: TrialRuns) -> None:
        trial, failure = runs.trial, runs.failure
        if failure is not None:
            by_default = trial.params == self.space.defaults()
            if isinstance(failure, ConfigError) and by_default and not trial.frames:
                self.ledger.give_up()
                raise failure
            trial.failure = f"{type(failure).__name__}: {failure}"[:500]
        self.ledger.finish(trial, runs.value())

    def _settings(self) -> dict[str, Any]:
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
        return to_plain(settings)


def _check_algorithm(algorithm: Algorithm) -> None:
    name = algorithm.name()
    if algorithm.seeds is not None:
        raise ConfigError(f"{name}: seeds={algorithm.seeds}: give the sweep the number of seeds.")
    for field in (
        *("workers", "engine", "collectors", "resume", "fork", "loggers", "run_dir", "mirror"),
    ):
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
