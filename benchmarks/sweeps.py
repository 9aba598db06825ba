"""What a sweep finds, beside random search at equal CPU seconds.

    python benchmarks/sweeps.py --output benchmarks/results/sweeps.json

A sweep of a few trials is made: settings chosen by TPE, poor trials ended early, four trials side
by side, finals where it has them. What CPU seconds that has taken, random search has as well, and
those of the trial in which they end: one trial after another, each to its end, the best of them
wins. Neither is told the default settings. Both draw the same settings while there is nothing to
learn from, so that they may well have the same winner. The winners are trained from fresh seeds,
the same for both, and scored by the mean area under their curves. It takes an hour; --tasks,
--trials and --seeds take less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hooktrainer.algorithms import PPO, Algorithm
from hooktrainer.show.curves import read_curves
from hooktrainer.statistics import SCORES
from hooktrainer.store.run_dir import RunDir
from hooktrainer.sweep import Sweep, SweepOptions
from hooktrainer.sweep.extra_seeds import train_from
from hooktrainer.sweep.finals import play_finals

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
}
FRESH = 10


class SpentError(Exception):
    """The CPU seconds are spent."""


def swept(algorithm: Algorithm, place: Path, trials: int, seed: int) -> tuple[Sweep, float]:
    """A sweep, and the CPU seconds it has taken."""
    before = time.process_time()
    sweep = Sweep(algorithm, SweepOptions(run_dir=place, trials=trials, seeds=2, seed=seed))
    sweep.run()
    play_finals(sweep)
    sweep.close()
    return sweep, time.process_time() - before


def searched(algorithm: Algorithm, place: Path, seconds: float, seed: int) -> Sweep:
    """Random search until so many CPU seconds are spent, and the trial under way is done."""
    end = time.process_time() + seconds

    def watch(trial: Any) -> None:
        if time.process_time() >= end:
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
    try:
        sweep.run(watch)
    except SpentError:
        sweep.close()
    return sweep


def true_score(sweep: Sweep, place: Path) -> float:
    """What the winner scores from fresh seeds."""
    assert sweep.winner is not None
    algorithm = sweep.algorithm_of(sweep.winner)
    seeds = range(FRESH)
    failures = train_from(seeds, [(algorithm, place)])
    assert not failures, failures
    curves = [read_curves(RunDir(place / f"seed{i}"), ["eval/return"]) for i in seeds]
    scores = [SCORES["area"](one["eval/return"], algorithm.total_frames) for one in curves]
    return float(np.mean(scores))


def compared(task: str, trials: int, seed: int) -> dict[str, Any]:
    """A sweep beside random search, once."""
    algorithm = TASKS[task]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sweep, seconds = swept(algorithm, place / "sweep", trials, seed)
        random = searched(algorithm, place / "random", seconds, seed)
        return {
            "task": task,
            "trials": trials,
            "seed": seed,
            "cpu_seconds": seconds,
            "random_trials": len(random.trials),
            "sweep": true_score(sweep, place / "best"),
            "random": true_score(random, place / "best_random"),
        }


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| | trials of the sweep | CPU s | trials of random search | sweep | random search | "
        "sweep is better, equal, worse in |",
        "|---|---|---|---|---|---|---|",
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
            f"{mean['sweep']:.0f} | {mean['random']:.0f} | {counts} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compare, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--trials", nargs="*", type=int, default=[8, 16])
    parser.add_argument("--seeds", nargs="*", type=int, default=range(5))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in given.seeds:
        for task in given.tasks:
            for trials in given.trials:
                rows.append(compared(task, trials, seed))
                print(json.dumps(rows[-1]), flush=True)
                if given.output is not None:
                    given.output.parent.mkdir(parents=True, exist_ok=True)
                    given.output.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
