"""Run hooktrainer and its peers in turn on one core, and print medians, ratios and verdicts.

    benchmarks/setup.sh                                         # once: an environment of its own
    .bench-venv/bin/python benchmarks/run.py                    # everything; takes hours
    .bench-venv/bin/python benchmarks/run.py --quick            # a short check that all of it runs
    .bench-venv/bin/python benchmarks/run.py --only ppo loop    # some of it
    .bench-venv/bin/python benchmarks/run.py --cleanrl ../cleanrl       # CleanRL's scripts as well

Every row is a process of its own. The rounds go through the rows one after the other, each round
from another row on, so that a machine that changes its speed does so for all. Figures are per CPU
second of the process, and all processes are pinned to the same core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from picture import draw
from results import Results
from rich.console import Console
from suite import BENCHMARKS, Benchmark, Case
from tables import print_tables

HERE = Path(__file__).parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(kw_only=True)
class Args:
    """Options of the benchmark run."""

    only: tuple[str, ...] = ()
    """names of the benchmarks to run; all if none is given"""
    rows: str = ""
    """run only the rows whose name contains this"""
    quick: bool = False
    """a short check that everything runs; its figures mean nothing and are not saved"""
    rounds: int | None = None
    """rounds, if not the benchmark's own number"""
    core: int | None = None
    """the core to run on; by default the last one this process may use"""
    cleanrl: Path | None = None
    """a checkout of CleanRL, whose scripts are run unchanged; without it their rows are left out"""
    results: Path = HERE / "results"
    """where the JSON goes"""
    picture: Path = HERE.parent / "docs" / "assets" / "benchmarks.svg"
    """where the picture goes; it shows all results in the folder, old and new"""
    timeout: float = 3_600
    """seconds after which a row's process is killed"""


def python(case: Case) -> Path:
    """Return the interpreter of a row."""
    if not case.environment:
        return Path(sys.executable)
    return Path(sys.prefix) / case.environment / "bin" / "python"


def command(case: Case, benchmark: Benchmark, args: Args, round_: int, log_dir: str) -> list[str]:
    """Return the command line of one row in one round."""
    line = [str(python(case)), "-W", "ignore", str(HERE / case.script), *case.options]
    if case.script == "cleanrl.py" and args.cleanrl is not None:
        line += ["--path", str(args.cleanrl.resolve())]
    if args.quick:
        line += benchmark.quick
    line += ["--log-dir", log_dir, "--seed", str(round_ if benchmark.seeds else 0)]
    return [*line, "--core", str(args.core)]


def run_case(case: Case, benchmark: Benchmark, args: Args, round_: int) -> dict | str:
    """Run one row once; return its JSON, or why there is none."""
    with tempfile.TemporaryDirectory() as log_dir:
        line = command(case, benchmark, args, round_, log_dir)
        environment = os.environ | ONE_THREAD
        try:
            done = subprocess.run(
                line,
                capture_output=True,
                text=True,
                env=environment,
                cwd=log_dir,
                timeout=args.timeout,
            )
        except subprocess.TimeoutExpired:
            return f"not done after {args.timeout:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_benchmark(benchmark: Benchmark, args: Args, console: Console) -> Results:
    """Run all rows of a benchmark in turn, and return what they gave."""
    results = Results(benchmark)
    cases = [case for case in benchmark.cases if args.rows in case.name]
    for case in list(cases):
        if case.script == "cleanrl.py" and args.cleanrl is None:
            results.missing[case.name] = "give --cleanrl PATH, a checkout of CleanRL"
            cases.remove(case)
        elif not python(case).exists():
            results.missing[case.name] = f"run benchmarks/setup.sh, which makes {python(case)}"
            cases.remove(case)
    rounds = args.rounds or (1 if args.quick else benchmark.rounds)
    for round_ in range(rounds):
        for i in range(len(cases)):
            case = cases[(round_ + i) % len(cases)]
            if case.name in results.missing:
                continue
            with console.status(f"{benchmark.name}: round {round_ + 1} of {rounds}: {case.name}"):
                output = run_case(case, benchmark, args, round_)
            if isinstance(output, str):
                results.missing[case.name] = output
            else:
                results.add(case.name, output)
    return results


def main(args: Args) -> int:
    """Run what was asked for; return 1 if a row of hooktrainer's own failed."""
    console = Console()
    console.width = max(console.width, 140)  # the tables are wide, also without a terminal
    unknown = [name for name in args.only if name not in BENCHMARKS]
    if unknown:
        console.print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    if args.core is None:
        args.core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else -1
    failed = 0
    for name in args.only or BENCHMARKS:
        if not any(args.rows in case.name for case in BENCHMARKS[name].cases):
            continue
        results = run_benchmark(BENCHMARKS[name], args, console)
        print_tables(results, console)
        failed += any(row.startswith(("hooktrainer", "loop")) for row in results.missing)
        if not (args.quick or args.rows):
            console.print(f"saved in {results.save(args.results)}")
    if not args.quick:
        draw(args.results, args.picture)
        console.print(f"drawn in {args.picture}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
