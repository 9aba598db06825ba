"""How often statistics over seeds are right, in simulated studies whose truth is known.

    python benchmarks/studies.py --output benchmarks/results/studies.json

Draws the scores of 5, 10 and 30 seeds from shapes that returns have, 1,000 times each, and counts
how often a 95 % interval holds the truth, how often a test finds a difference where there is none,
and how many seeds it takes to find one. The tables of docs/statistics.md are made of it. It takes
half an hour.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from hooktrainer.statistics import (
    ESTIMATORS,
    Interval,
    decide,
    difference,
    interval,
    looks,
    percentile_interval,
    permutation_test,
    probability_of_improvement,
)

Shape = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Counts = dict[str, float | None]


def humps(rng: np.random.Generator, size: tuple[int, ...], low: float) -> np.ndarray:
    """Two humps five standard deviations apart, with a share of the seeds in the lower one."""
    return rng.normal(size=size) - 5 * (rng.random(size) < low)


SHAPES: dict[str, Shape] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "skewed": lambda rng, size: -rng.lognormal(sigma=0.5, size=size),
    "much skewed": lambda rng, size: -rng.lognormal(sigma=1.0, size=size),
    "two humps, 5 in 10 low": partial(humps, low=0.5),
    "two humps, 3 in 10 low": partial(humps, low=0.3),
    "two humps, 2 in 10 low": partial(humps, low=0.2),
    "a third at the ceiling": lambda rng, size: np.minimum(rng.normal(size=size), 0.43),
}
SEEDS = (5, 10, 30)
SIZES = ((5,), (10,), (30,), (3, 10), (5, 5), (10, 5))
RESAMPLES = 1000
BUDGET = 30


def coverage(studies: int, truth: float, make: Callable[..., Interval], *given: object) -> Counts:
    """Per cent of the intervals that hold the truth, and of the studies that have one."""
    made = [make(np.random.default_rng([7, study]), *given) for study in range(studies)]
    there = [one for one in made if one.low is not None and one.high is not None]
    held = sum(one.low - 1e-9 <= truth <= one.high + 1e-9 for one in there)
    return {
        "covered": 100 * held / len(there) if there else None,
        "given": 100 * len(there) / studies,
    }


def ours(rng: np.random.Generator, shape: Shape, size: tuple[int, ...], name: str) -> Interval:
    return interval(shape(rng, size) + levels(size), name, resamples=RESAMPLES)


def plain(rng: np.random.Generator, shape: Shape, size: tuple[int, ...], name: str) -> Interval:
    """The percentile interval of a single task as it is usually reported."""
    scores = shape(rng, size)
    drawn = scores[rng.integers(0, len(scores), (RESAMPLES, len(scores)))]
    low, high = percentile_interval(ESTIMATORS[name](drawn, axis=1))
    return Interval(0.0, low, high, "percentile")


def apart(rng: np.random.Generator, shape: Shape, size: tuple[int, ...], name: str) -> Interval:
    """Of the difference of two, one of which is better by 1."""
    scores, others = shape(rng, size) + 1, shape(rng, size)
    if name == "improvement":
        return probability_of_improvement(scores, others)
    return difference(scores, others, name, resamples=RESAMPLES)


def levels(size: tuple[int, ...]) -> np.ndarray:
    """What is added to the scores of each task: no two tasks are equally hard."""
    return np.linspace(0, 2, size[1]) if len(size) > 1 else np.zeros(1)


def of_intervals(studies: int) -> dict[str, Counts]:
    """Coverage of `interval`, of one task and of several, and of the plain percentile interval."""
    found = {}
    for (shape_name, shape), size in product(SHAPES.items(), SIZES):
        tasks = size[1:]
        everybody = shape(np.random.default_rng(1), (4_000_000 // math.prod(tasks), *tasks))
        for name, estimate in ESTIMATORS.items():
            truth = float(estimate(everybody + levels(size), axis=None))
            several = f" of {size[1]} tasks" if tasks else ""
            key = f"{name}, {size[0]} seeds{several}, {shape_name}"
            found[key] = coverage(studies, truth, ours, shape, size, name)
            if not tasks:
                usual = coverage(studies, truth, plain, shape, size, name)
                found[key]["percentile"] = usual["covered"]
            print(key, found[key], flush=True)
    return found


def of_differences(studies: int) -> dict[str, Counts]:
    """Coverage of differences and of the probability of improvement."""
    found = {}
    for (shape_name, shape), seeds in product(SHAPES.items(), SEEDS):
        everybody, others = shape(np.random.default_rng(2), (2, 4_000_000))
        wins = float(np.heaviside(everybody + 1 - others, 0.5).mean())
        for name in (*ESTIMATORS, "improvement"):
            truth = wins if name == "improvement" else 1.0
            key = f"{name}, {seeds} seeds, {shape_name}"
            found[key] = coverage(studies, truth, apart, shape, (seeds,), name)
            print(key, found[key], flush=True)
    return found


def of_tests(studies: int) -> dict[str, Counts]:
    """Per cent of studies in which a difference is found, and seeds a group when one looks up."""
    found = {}
    for (shape_name, shape), shift in product(SHAPES.items(), (0.0, 1.0, 2.0)):
        naive, once, honest, seeds = 0, 0, 0, []
        for study in range(studies):
            a, b = shape(np.random.default_rng([11, study]), (2, BUDGET))
            a = a + shift
            low = [permutation_test(a[:n], b[:n], permutations=999) < 0.05 for n in looks(BUDGET)]
            naive, once = naive + any(low), once + low[-1]
            for n in looks(BUDGET):
                decision = decide({"a": a[:n], "b": b[:n]}, BUDGET, permutations=1999, seed=study)
                if decision.next_look is None:
                    break
            honest += decision.best is not None
            seeds.append(decision.seeds)
        key = f"{shape_name}, better by {shift:g}"
        found[key] = {
            "once": 100 * once / studies,
            "at every look": 100 * naive / studies,
            "decided": 100 * honest / studies,
            "seeds": float(np.mean(seeds)),
        }
        print(key, found[key], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--only", choices=("intervals", "differences", "tests"))
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    parts = {"intervals": of_intervals, "differences": of_differences, "tests": of_tests}
    found = json.loads(args.output.read_text()) if args.output and args.output.exists() else {}
    found["studies"] = args.studies
    for name, part in parts.items():
        if args.only in (None, name):
            found[name] = part(args.studies)
            if args.output:
                args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
