"""A sweep compared with random search on models of two tasks: minutes in place of days.

    python benchmarks/sweep_model.py
    python benchmarks/sweep_model.py --record "PPO CartPole, 8k frames"

Settings drawn evenly from the space of PPO were trained, each from four seeds, and their curves
are in results/sweep_curves.json: 80 settings of CartPole, 32 of Pendulum. The model of a task takes
the mean curve of any settings from these by a Gaussian process, and a seed's deviation from the
seeds of settings nearby. On it the parts of a sweep that choose settings, end trials and choose a
winner are run as they are. What costs is frames; those of a batched run cost as its rows do and
some rows more, as in CPU seconds, so that trials side by side cost less each. Sweeps are compared
with random search that trains one trial at a time, as it is commonly done, and with one that trains
as many side by side as the sweep. Winners are scored by the model's mean: so differences of a few
points are seen. It needs scikit-learn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sweeps import TASKS, mean_interval

from hooktrainer import RunDir
from hooktrainer.base.checks import TUNING_SEEDS
from hooktrainer.show import read_curves
from hooktrainer.sweep import SearchSpace, SweepOptions
from hooktrainer.sweep.confirm import MORE, train_from
from hooktrainer.sweep.ledger import MedianPruner

CURVES = Path(__file__).with_name("results") / "sweep_curves.json"
SETTINGS, SEEDS, EVALUATIONS = 80, 4, 4
# By task, what a batched run costs besides its rows, in rows, as measured with 2 to 32 of them; and
# what the end of a trial costs that is ended early, as a part of a run: assumed, to be a batch. A
# sweep of 8 trials on CartPole costs 2.7 trials alone by that, and 3.2 as measured.
COSTS = {"PPO CartPole, 8k frames": (2.5, 1 / 8), "PPO Pendulum, 12k frames": (4.0, 1 / 12)}
Values = NDArray[np.float64]


class Model:
    """Curves of any settings of a task, four evaluations each, in place of training.

    Args:
        rows: Settings, each with the returns of its seeds.
        space: What is searched.
        fixed: What a batched run costs besides its rows, in rows.
        ending: What it costs to end a trial early, as a part of a run.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        space: SearchSpace,
        fixed: float = 0.0,
        ending: float = 0.0,
    ) -> None:
        self.space, self._fixed, self.ending = space.distributions(), fixed, ending
        curves = np.array([row["returns"] for row in rows])  # [settings, seeds, evaluations]
        means = curves.mean(axis=1)
        self._deviations = (curves - means[:, None]) * (SEEDS / (SEEDS - 1)) ** 0.5
        points = np.array([self._point(row["settings"]) for row in rows])
        self._middle, self._scale = points.mean(axis=0), points.std(axis=0)
        self._points = (points - self._middle) / self._scale
        self._mean, self._spread = means.mean(axis=0), means.std(axis=0)
        kernel = ConstantKernel() * RBF(np.full(points.shape[1], 2.0), (0.3, 30)) + WhiteKernel(0.1)
        self._process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lengths at their bounds
            self._process.fit(self._points, (means - self._mean) / self._spread)

    def _point(self, settings: Mapping[str, float]) -> Values:
        ordered = {name: settings[name] for name in self.space}
        ordered["lr"], ordered["gamma"] = np.log(ordered["lr"]), np.log(1 - ordered["gamma"])
        return np.array(list(ordered.values()))

    def cost(self, rows: float) -> float:
        """What a batched run costs from the first frame to the last, in rows."""
        return self._fixed + rows if rows else 0.0

    def mean(self, settings: Mapping[str, float]) -> Values:
        """The mean curve, ``[evaluations]``."""
        point = (self._point(settings) - self._middle) / self._scale
        found: Values = self._process.predict(point[None])[0] * self._spread + self._mean
        return found

    def seeds(self, settings: Mapping[str, float], count: int, rng: Any) -> Values:
        """Curves of some seeds, ``[seeds, evaluations]``."""
        point = (self._point(settings) - self._middle) / self._scale
        near = np.argsort(((self._points - point) ** 2).sum(axis=1))[:8]
        drawn = self._deviations[rng.choice(near, count), rng.integers(SEEDS, size=count)]
        found: Values = self.mean(settings) + drawn
        return found


def area(curves: Values, evaluations: int = EVALUATIONS) -> Any:
    """The area under curves up to an evaluation, as a mean."""
    if evaluations == 1:
        return curves[..., 0]
    known = curves[..., :evaluations]
    return ((known[..., 1:] + known[..., :-1]) / 2).mean(axis=-1)


def swept(model: Model, pruner: Any, options: SweepOptions, seed: int) -> tuple[float, float]:
    """What the winner of a sweep scores, and its cost in rows."""
    rng = np.random.default_rng(seed)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    known = min(10, max(4, options.trials // 4))
    done: list[tuple[float, Any]] = []
    cost = 0.0
    for first in range(0, options.trials, options.parallel):
        running = []
        for number in range(first, min(first + options.parallel, options.trials)):
            study.sampler = optuna.samplers.TPESampler(
                seed=seed * 1_000_003 + number, n_startup_trials=known
            )
            trial = study.ask(model.space)
            running.append((trial, model.seeds(trial.params, options.seeds, rng)))
        for at in range(1, EVALUATIONS + 1):
            cost += model.cost(len(running) * options.seeds) / EVALUATIONS
            for trial, curves in running:
                trial.report(area(curves, at).mean(), at)
            ended = [t.number for t, _ in running if at < EVALUATIONS and t.should_prune()]
            cost += len(ended) * options.seeds * model.ending
            for number in ended:
                study.tell(number, state=optuna.trial.TrialState.PRUNED)
            running = [(t, curves) for t, curves in running if t.number not in ended]
        for trial, curves in running:
            study.tell(trial, area(curves).mean())
            done.append((area(curves).mean(), trial.params))
    best = sorted(done, key=lambda one: -one[0])[: max(1, options.most_finalists)]
    if len(best) > 1:
        count = MORE * options.seeds
        cost += model.cost(count * len(best))
        further = [(v, area(model.seeds(p, count, rng)).mean(), p) for v, p in best]
        best = [((value + MORE * more) / (1 + MORE), p) for value, more, p in further]
    return float(area(model.mean(max(best, key=lambda one: one[0])[1]))), cost


def searched(model: Model, seeds: int, cost: float, seed: int, parallel: int) -> float:
    """What the best trial scores of a random search that costs as much.

    Of trials side by side it has a part of those in which its cost is spent: as if they were fewer.
    """
    rng = np.random.default_rng((seed, 1))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed + 1_000_003))
    best, spent = (-np.inf, {}), 0.0
    while spent < cost:
        trial = study.ask(model.space)
        value = area(model.seeds(trial.params, seeds, rng)).mean()
        study.tell(trial, 0.0)
        spent += model.cost(parallel * seeds) / parallel
        best = max(best, (value, trial.params), key=lambda one: one[0])
    return float(area(model.mean(best[1])))


def record(task: str) -> list[dict[str, Any]]:
    """Train settings that cover the space evenly."""
    algorithm = TASKS[task]()
    space = SearchSpace.of(algorithm)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # Optuna's sampler is experimental
        sampler = optuna.samplers.QMCSampler(scramble=True, seed=1)
        study = optuna.create_study(sampler=sampler)
        drawn = []
        for _ in range(SETTINGS):
            trial = study.ask(space.distributions())
            study.tell(trial, 0.0)
            drawn.append(trial.params)
        seeds = TUNING_SEEDS[-SEEDS:]
        places = [Path(folder) / str(n) for n in range(SETTINGS)]
        runs = [replace(algorithm, **space.settings(one)) for one in drawn]
        for n in range(0, SETTINGS, 16):
            failures = train_from(seeds, list(zip(runs, places, strict=True))[n : n + 16])
            assert not failures, failures
        curves = [
            [read_curves(RunDir(p / f"seed{s}"), ["eval/return"])["eval/return"] for s in seeds]
            for p in places
        ]
    return [
        {"settings": one, "returns": [np.round(c.values, 1).tolist() for c in its]}
        for one, its in zip(drawn, curves, strict=True)
    ]


def main() -> None:
    """Compare on the models that there are, or record what one is made of."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", choices=list(TASKS))
    parser.add_argument("--trials", nargs="*", type=int, default=[8, 24, 48])
    parser.add_argument("--repeats", type=int, default=200)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tables = json.loads(CURVES.read_text()) if CURVES.exists() else {}
    if given.record:
        CURVES.write_text(json.dumps({**tables, given.record: record(given.record)}) + "\n")
        return
    ways = [(4, MedianPruner(1), ""), (16, MedianPruner(1), "")]
    ways.append((16, optuna.pruners.NopPruner(), ", none is ended early"))
    heads = ("task", "trials", "", "whole trials alone that cost as much", "sweep")
    heads = (*heads, "better than random search by", "than random search side by side")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for task, rows in tables.items():
        model = Model(rows, SearchSpace.of(TASKS[task]()), *COSTS[task])
        for trials, (parallel, pruner, name) in itertools.product(given.trials, ways):
            options = SweepOptions(run_dir=Path(), trials=trials, seeds=2, parallel=parallel)
            at_once = min(parallel, trials)
            found = []
            for seed in range(given.repeats):
                score, cost = swept(model, pruner, options, seed)
                alone, wide = (searched(model, 2, cost, seed, many) for many in (1, at_once))
                found.append((score, cost / model.cost(2), score - alone, score - wide))
            score, cost, _, _ = np.mean(found, axis=0)
            gains = [mean_interval([one[k] for one in found]) for k in (2, 3)]
            shown = (f"{at_once} side by side{name}", f"{cost:.1f}", f"{score:.0f}", *gains)
            print(f"| {task} | {trials} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
