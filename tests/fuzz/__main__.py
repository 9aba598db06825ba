"""Opens thousands of spoilt files of every kind, and counts what comes of it: `make test-fuzz`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from guard import poisoned_environment

if __name__ == "__main__" and "MALLOC_PERTURB_" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], poisoned_environment())

import holes
from runner import FAULTS, OUTCOMES, Report, clock, run_cases
from target import Target

_SLICE = 1000
_SHOWN = 40


def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    import arrays
    import checkpoints
    import policies
    import runs
    import torchrl_files
    import training

    modules = (checkpoints, torchrl_files, training, policies, runs, arrays)
    return {target.name: target for module in modules for target in module.targets()}


def _run(task: tuple[str, Sequence[int], int, float]) -> tuple[str, Report, float]:
    name, numbers, seed, patience = task
    begin = clock()
    return name, run_cases(TARGETS[name], numbers, seed, patience=patience), clock() - begin


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="parts of their names; all by default")
    parser.add_argument("--cases", type=int, default=10_000, help="of each target (10,000)")
    parser.add_argument("--seed", type=int, default=0, help="from which all cases follow (0)")
    parser.add_argument("--case", type=int, help="this one alone, and what came of it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a case may take (60)")
    parser.add_argument(
        "--holes", action="store_true", help="plant defects, and see that each is found"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run what the words ask for; 1 if anything was found."""
    args = _parse(words)
    if args.holes:
        return holes.main(TARGETS, args.seed)
    chosen = [
        name for name in TARGETS if not args.targets or any(part in name for part in args.targets)
    ]
    if not chosen:
        print(f"no such target; there are: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if args.case is not None:
        return _show(chosen[0], args)
    begin = clock()
    numbers = [range(i, min(i + _SLICE, args.cases)) for i in range(0, args.cases, _SLICE)]
    tasks = [(name, some, args.seed, args.patience) for some in numbers for name in chosen]
    reports = {name: Report() for name in chosen}
    seconds = dict.fromkeys(chosen, 0.0)
    with get_context("fork").Pool(args.jobs) as pool:
        for name, report, took in pool.imap_unordered(_run, tasks):
            reports[name].counts += report.counts
            reports[name].faults += report.faults
            seconds[name] += took
            done = reports[name].counts.total()
            print(f"{name}: {done:,} of {args.cases:,}", file=sys.stderr, flush=True)
    return _print(reports, seconds, args, clock() - begin)


def _show(name: str, args: argparse.Namespace) -> int:
    report = run_cases(TARGETS[name], [args.case], args.seed, patience=args.patience)
    print(f"{name}, case {args.case}: {', '.join(report.counts)}")
    for _, fault, what in report.faults:
        print(f"{fault}: {what}")
    return 1 if report.faults else 0


def _print(
    reports: dict[str, Report], seconds: dict[str, float], args: argparse.Namespace, took: float
) -> int:
    width = max(map(len, reports))
    heads = ("cases", *OUTCOMES, *FAULTS, "seconds")
    print(" " * width, *(f"{head:>9}" for head in heads))
    for name, report in reports.items():
        cells: list[Any] = [report.counts.total()]
        cells += [report.counts[kind] for kind in (*OUTCOMES, *FAULTS)]
        print(f"{name:{width}}", *(f"{cell:>9,}" for cell in cells), f"{seconds[name]:>9.0f}")
    faults = [(name, *fault) for name, report in reports.items() for fault in report.faults]
    alike: dict[tuple[str, str, str], list[int]] = {}
    for name, number, fault, what in sorted(faults):
        alike.setdefault((name, fault, re.sub(r"\d+|'.*'", "?", what)[:60]), []).append(number)
    first = {(name, number): (fault, what) for name, number, fault, what in faults}
    for (name, _, _), numbers in list(alike.items())[:_SHOWN]:
        fault, what = first[name, numbers[0]]
        print(f"{fault}: {what} ({len(numbers)} like this)")
        print(f"    again: python tests/fuzz {name!r} --case {numbers[0]} --seed {args.seed}")
    print(f"{len(faults) or 'no'} faults in {took:.0f} s, seed {args.seed}")
    return 1 if faults else 0


TARGETS = all_targets() if __name__ == "__main__" else {}

if __name__ == "__main__":
    sys.exit(main())
