"""What a sweep finds, compared with random search at equal CPU seconds.

    python benchmarks/sweeps.py --output benchmarks/results/sweeps.json

Sweeps of several numbers of trials are made as they are by default: settings chosen by TPE, trials
side by side, poor ones ended early, finals where there are some. What CPU seconds a sweep has
taken, random search has as well, and those of the trial in which they end: one trial after another,
each to its end, the best of them wins. So one random search will do for all sweeps of a repeat.
Neither is told the default settings. Both draw the same settings while there is nothing to learn
from, so that they may well have the same winner. The winners are trained from fresh seeds, the same
for all, and scored by the mean area under their curves. It takes an hour; --tasks, --trials and
--seeds take less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from hooktrainer import RunDir
from hooktrainer.algorithms import A2C, PPO, Algorithm
from hooktrainer.show import read_curves
from hooktrainer.statistics import SCORES
from hooktrainer.sweep import Sweep, SweepOptions
from hooktrainer.sweep.confirm import play_finals, train_from

COMMON: dict[str, Any] = {"progress_bar": False, "logger": "csv", "stop_at": None, "threads": 1}
TASKS: dict[str, Callable[[], Algorithm]] = {
    # A learning rate outside of the space: no trial has the default settings.
    "PPO CartPole, 8k frames": lambda: PPO(
        env="CartPole-v1",
        total_frames=8_000,
        eval_interval=2_000,
        eval_episodes=5,
        lr=1.0,
        save_interval=8_000,
        **COMMON,
    ),
    "PPO Pendulum, 12k frames": lambda: PPO(
        env="Pendulum-v1",
        total_frames=12_000,
        eval_interval=3_000,
        eval_episodes=5,
        lr=1.0,
        save_interval=12_000,
        tuned=False,
        **COMMON,
    ),
    # What the sweep was not developed on.
    "A2C CartPole, 10k frames": lambda: A2C(
        env="CartPole-v1",
        total_frames=10_000,
        eval_interval=2_500,
        eval_episodes=5,
        lr=1.0,
        save_interval=10_000,
        **COMMON,
    ),
}
FRESH = 10


class SpentError(Exception):
    """The CPU seconds are spent."""


def swept(algorithm: Algorithm, place: Path, trials: int, seed: int) -> tuple[Algorithm, float]:
    """What a sweep finds, and the CPU seconds it has taken."""
    before = time.process_time()
    sweep = Sweep(algorithm, SweepOptions(run_dir=place, trials=trials, seeds=2, seed=seed))
    sweep.run()
    play_finals(sweep)
    sweep.close()
    assert sweep.winner is not None
    return sweep.algorithm_of(sweep.winner), time.process_time() - before


def searched(
    algorithm: Algorithm, place: Path, seconds: float, seed: int
) -> list[tuple[float, float, Algorithm]]:
    """The trials of a random search until so many CPU seconds are spent.

    Returns:
        Of each trial the CPU seconds after which it ended, its value and its settings.
    """
    begun = time.process_time()
    found: list[tuple[float, float, Algorithm]] = []

    def watch(trial: Any) -> None:
        spent = time.process_time() - begun
        if trial.value is not None:
            found.append((spent, trial.value, sweep.algorithm_of(trial)))
        if spent >= seconds:
            raise SpentError

    options = SweepOptions(
        run_dir=place,
        trials=100_000,
        seeds=2,
        parallel=1,
        seed=seed,
        sampler="random",
        pruner="none",
        finalists=0,
    )
    sweep = Sweep(algorithm, options)
    with suppress(SpentError):
        sweep.run(watch)
    sweep.close()
    return found


def within(
    trials: list[tuple[float, float, Algorithm]], seconds: float
) -> list[tuple[float, float, Algorithm]]:
    """The trials that have ended after so many seconds, and the one in which these end."""
    done = sum(spent < seconds for spent, _, _ in trials)
    return trials[: done + 1]


def true_scores(winners: list[Algorithm], place: Path) -> list[float]:
    """What winners score from fresh seeds."""
    distinct: list[Algorithm] = []
    for one in winners:
        if one not in distinct:
            distinct.append(one)
    settings = [(one, place / str(n)) for n, one in enumerate(distinct)]
    failures = train_from(range(FRESH), settings)
    assert not failures, failures
    return [_area(one, place / str(distinct.index(one))) for one in winners]


def _area(algorithm: Algorithm, place: Path) -> float:
    curves = [read_curves(RunDir(place / f"seed{i}"), ["eval/return"]) for i in range(FRESH)]
    scores = [SCORES["area"](one["eval/return"], algorithm.total_frames) for one in curves]
    return float(np.mean(scores))


def compared(task: str, budgets: list[int], seed: int) -> list[dict[str, Any]]:
    """Sweeps of several numbers of trials and random search, once."""
    algorithm = TASKS[task]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sweeps = [swept(algorithm, place / f"sweep{n}", n, seed) for n in budgets]
        trials = searched(algorithm, place / "random", max(s for _, s in sweeps), seed)
        random = [within(trials, seconds) for _, seconds in sweeps]
        best = [max(done, key=lambda one: one[1])[2] for done in random]
        scores = true_scores([winner for winner, _ in sweeps] + best, place / "fresh")
    return [
        {
            "task": task,
            "trials": n,
            "seed": seed,
            "cpu_seconds": seconds,
            "random_trials": len(done),
            "sweep": scores[k],
            "random": scores[k + len(budgets)],
        }
        for k, (n, (_, seconds), done) in enumerate(zip(budgets, sweeps, random, strict=True))
    ]


def mean_interval(values: list[float]) -> str:
    """The mean, and Student's 95 % interval of it."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return f"{mean:.0f} [-]"
    reach = float(student.ppf(0.975, count - 1) * np.std(values, ddof=1) / count**0.5)
    return f"{mean:.0f} [{mean - reach:.0f}, {mean + reach:.0f}]"


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| | trials of the sweep | CPU s | trials of random search | sweep | random search | "
        "difference | sweep is better, equal, worse in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, trials in dict.fromkeys((row["task"], row["trials"]) for row in rows):
        own = [row for row in rows if (row["task"], row["trials"]) == (task, trials)]
        mean = {
            name: float(np.mean([row[name] for row in own]))
            for name in ("cpu_seconds", "random_trials", "sweep", "random")
        }
        better = sum(row["sweep"] > row["random"] for row in own)
        equal = sum(row["sweep"] == row["random"] for row in own)
        counts = f"{better}, {equal}, {len(own) - better - equal}"
        lines.append(
            f"| {task} | {trials} | {mean['cpu_seconds']:.0f} | {mean['random_trials']:.0f} | "
            f"{mean['sweep']:.0f} | {mean['random']:.0f} | "
            f"{mean_interval([row['sweep'] - row['random'] for row in own])} | {counts} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--trials", nargs="*", type=int, default=[8, 24, 48])
    parser.add_argument("--seeds", nargs="*", type=int, default=range(5))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in given.seeds:
        for task in given.tasks:
            found = compared(task, given.trials, seed)
            rows += found
            print("\n".join(json.dumps(row) for row in found), flush=True)
            if given.output is not None:
                given.output.parent.mkdir(parents=True, exist_ok=True)
                given.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
