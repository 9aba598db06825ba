"""`hooktrainer verify-results`: train a published seed again and compare, bit by bit."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from ..base.checks import named
from ..base.words import ranges
from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import Directory, Flag, OptionalSeed, shown_as
from .verify_resume import ScriptFailedError, finish, running, workplace

if TYPE_CHECKING:
    from ..show.results.result_rows import ResultRow, RowRecipe

RowName = Annotated[str | None, Positional, shown_as("[ROW]")]


def verify_results(
    row: RowName = None, /, *, seed: OptionalSeed = None, keep: Directory = None, json: Flag = False
) -> int:
    """Train one seed of a row of the results page again, and compare it, bit by bit.

    All metrics except times are compared at every frame, and so are the final parameters. Equal
    bits cannot be expected if steps are compiled, or the processor, the system or a package differs
    from the row's. Then the score has to be in the 95 % prediction interval of the row's seeds.

    Without a ROW, lists the rows and their cost.

    The exit code is 0 if the bits are the same, or cannot be and the score is in range; 1 if not,
    or if training fails. The run is kept then.

    Example: hooktrainer verify-results ppo-cartpole --seed 3

    Args:
        row: name of the row
        seed: which of its seeds; by default the first
        keep: keep the run in this directory
        json: print JSON
    """
    from ..show.results.result_rows import read_rows

    rows = read_rows()
    if row is None:
        return _list(rows.values(), json)
    found = named("row", row, rows, "; see hooktrainer verify-results")
    seed = next(iter(found.digests)) if seed is None else seed
    if seed not in found.digests:
        raise ConfigError(f"--seed {seed}: {row} has the seeds {ranges(found.digests)}.")
    return _verify(found, seed, keep, json)


def _verify(row: ResultRow, seed: int, keep: Path | None, json: bool) -> int:
    from ..show.results.result_rows import changed, read_digest, surroundings
    from ..statistics import prediction_interval

    recipe, was = row.recipe, row.digests[seed]
    with workplace("verify-results", keep and keep.absolute()) as (place, removal):
        cost = output.duration(row.cpu_seconds / len(row.digests))
        output.note(f"training {was.frames:,} frames, which took {cost} of a core in the row")
        try:
            run = train_row(recipe, seed, seed, place) / f"seed{seed}"
        except ScriptFailedError as error:
            removal.pop_all()
            output.note(f"error: {error}\nWhat there is, is in {place}")
            return 1
        digest = read_digest(run, was.metrics, recipe.score)
        difference = was.first_difference(digest, recipe.score)
        elsewhere = changed(row.surroundings, surroundings(recipe.packages, recipe.deterministic))
        if "--compile" in recipe.train:
            elsewhere.append("its steps are compiled, by this machine's compiler")
        found = prediction_interval(row.scores)
        low, high, why = found.low, found.high, "where 95 of 100 further seeds would be"
        if low is None or high is None:
            low, high = min(row.scores), max(row.scores)
            why = f"from the worst to the best of its seeds ({found.method})"
        in_range = low <= digest.score <= high
        passed = difference is None or (bool(elsewhere) and in_range)
        if not passed or keep is not None:
            removal.pop_all()
            output.note(f"the run is in {run}")
    facts = {"row": row.name, "seed": seed, "identical": difference is None, "passed": passed}
    facts |= {"difference": difference, "elsewhere": elsewhere, "why": why}
    facts |= {"score": digest.score, "was": was.score, "expected": (low, high)}
    score, own, least, most = map(output.number, (digest.score, was.score, low, high))
    if json:
        output.print_json(facts)
    elif difference is None:
        output.line(
            f"identical: {len(digest.metrics)} metrics and the parameters are bit for bit those of "
            f"{row.name}, seed {seed}; it scores {score}"
        )
    else:
        output.line(f"different: {difference}")
        output.line(
            f"bits cannot be expected to be the same: {'; '.join(elsewhere)}\nso the score was "
            f"compared: {score}, of the row's seed {own}; it should be between {least} and {most}, "
            f"{why}: {'it is' if in_range else 'it is not'}"
            if elsewhere
            else "processor, system and packages are those of the row: the bits should be too"
        )
    return 0 if passed else 1


def train_row(recipe: RowRecipe, first: int, last: int, place: Path) -> Path:
    """Train consecutive seeds of a row in a directory that holds nothing else, or resume them.

    Returns the directory of ``seed<n>``, whose parent holds the logs.
    """
    runs = place / recipe.name
    prepared = RunDir(place / "prepared").read().get("status") in ("finished", "solved")
    if recipe.prepare and not prepared:
        _train(recipe.prepare, place, place / "prepared")
    if recipe.together:
        _train(recipe.words(first, last), place, runs)
    else:
        for seed in range(first, last + 1):
            _train(recipe.words(seed, seed), place, runs / f"seed{seed}")
    return runs


def _train(words: Sequence[str], place: Path, run: Path) -> None:
    """Train with the row's command line."""
    output.note(f"$ hooktrainer train {shlex.join(words)} --run-dir {shlex.quote(str(run))}")
    command = [sys.executable, "-m", "hooktrainer", "train", *words]
    run.parent.mkdir(parents=True, exist_ok=True)
    # Floating-point sums depend on the number of threads.
    environ = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # A module that is found here is found there.
    paths = filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    log = place / f"{run.name}.log"
    with running(command, run, log, place, environ=environ) as script:
        finish(script, log)


def _list(rows: Iterable[ResultRow], json: bool) -> int:
    from ..show.report.analysis import interval_text
    from ..statistics import interval

    columns: dict[str, output.Column] = {
        "row": "row",
        "seeds": lambda row: len(row["seeds"]),
        "IQM of the return": lambda row: interval_text(interval(row["scores"])),
        "frames a seed": lambda row: round(sum(row["frames"]) / len(row["frames"])),
        "CPU time a seed": lambda row: output.duration(row["cpu_seconds"] / len(row["seeds"])),
    }
    names = ("command", "scores", "frames", "cpu_seconds", "commit", "surroundings")
    records = [
        {"row": row.name, "seeds": list(row.digests), **{n: getattr(row, n) for n in names}}
        for row in rows
    ]
    output.print_records(records, columns, json=json)
    if not json:
        output.line("hooktrainer verify-results ROW trains a seed of one again, and compares it.")
    return 0
