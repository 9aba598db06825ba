"""Opens thousands of spoilt files of every kind, and counts what comes of it: `make test-fuzz`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent))

if __name__ == "__main__" and "MALLOC_PERTURB_" not in os.environ:
    # Reading uninitialized memory shows.
    quiet = {"MALLOC_PERTURB_": "165", "RL_LOGGING_LEVEL": "WARNING", "OMP_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **quiet})

from harness import FAULTS, OUTCOMES, Report, Target, run_cases

_SLICE = 1000
_SHOWN = 40


def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    import checkpoints
    import misbehaving
    import policies
    import runs
    import torchrl_files

    modules = (checkpoints, torchrl_files, policies, runs)
    if "--self-test" in sys.argv:
        modules = (misbehaving,)
    return {target.name: target for module in modules for target in module.targets()}


def _run(task: tuple[str, Sequence[int], argparse.Namespace]) -> tuple[str, Report, float]:
    name, numbers, args = task
    begin = perf_counter()
    report = run_cases(TARGETS[name], numbers, args.seed, args.patience)
    return name, report, perf_counter() - begin


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="parts of their names; all by default")
    parser.add_argument("--cases", type=int, default=10_000, help="of each target (10,000)")
    parser.add_argument("--seed", type=int, default=0, help="from which all cases follow (0)")
    parser.add_argument("--case", type=int, help="this one alone, and what came of it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a case may take (60)")
    parser.add_argument(
        "--self-test", action="store_true", help="readers that do wrong: each must be found"
    )
    return parser.parse_args()


def main() -> int:
    """Run what the words ask for; 1 if anything was found."""
    args = _parse()
    chosen = [n for n in TARGETS if not args.targets or any(part in n for part in args.targets)]
    if not chosen:
        print(f"no such target; there are: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    numbers = [range(i, min(i + _SLICE, args.cases)) for i in range(0, args.cases, _SLICE)]
    if args.case is not None:
        chosen, numbers = chosen[:1], [range(args.case, args.case + 1)]
    tasks = [(name, some, args) for some in numbers for name in chosen]
    reports = {name: Report() for name in chosen}
    seconds = dict.fromkeys(chosen, 0.0)
    with ProcessPoolExecutor(args.jobs, get_context("fork")) as pool:
        for name, report, took in pool.map(_run, tasks):
            reports[name].counts += report.counts
            reports[name].faults += report.faults
            seconds[name] += took
            print(f"{name}: {reports[name].counts.total():,} cases", file=sys.stderr, flush=True)
    width = max(map(len, chosen))
    print(" " * width, *(f"{head:>9}" for head in ("cases", *OUTCOMES, *FAULTS, "seconds")))
    for name, report in reports.items():
        counts = (report.counts.total(), *(report.counts[kind] for kind in (*OUTCOMES, *FAULTS)))
        print(f"{name:{width}}", *(f"{n:>9,}" for n in counts), f"{seconds[name]:>9.0f}")
    faults = [(name, *fault) for name, report in reports.items() for fault in report.faults]
    for name, number, fault, what in sorted(faults)[:_SHOWN]:
        again = f"python tests/fuzz {name!r} --case {number} --seed {args.seed}"
        print(f"{fault}: {what}\n    again: {again}")
    print(f"{len(faults) or 'no'} faults, seed {args.seed}")
    return 1 if faults else 0


TARGETS = all_targets() if __name__ == "__main__" else {}

if __name__ == "__main__":
    sys.exit(main())
