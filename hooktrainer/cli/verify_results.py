"""`hooktrainer verify-results`: train a published seed again and compare, bit by bit."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from ..base.words import ranges
from ..errors import ConfigError
from . import output
from .arguments import Directory, Flag, Seed, shown_as
from .verify_resume import Script, ScriptFailedError, workplace

if TYPE_CHECKING:
    from ..show.results.result_rows import ResultRow, RunDigest

RowName = Annotated[str | None, Positional, shown_as("[ROW]")]


def verify_results(
    row: RowName = None,
    /,
    *,
    seed: Seed = None,
    keep: Directory = None,
    json: Flag = False,
) -> int:
    """Train one seed of a row of the results page again, and compare it, bit by bit.

    All metrics except times are compared at every frame, and so are the final parameters. Equal
    bits cannot be expected if the processor, the system or a package differs from the row's. Then
    the score has to be in the 95 % prediction interval of the row's seeds.

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
    from ..show.results.result_rows import find_row

    if row is None:
        for name, value in (("--seed", seed), ("--keep", keep)):
            if value is not None:
                raise ConfigError(
                    f"{name} {value}: of which ROW? hooktrainer verify-results lists them."
                )
        return _list(json)
    found = find_row(row)
    seed = next(iter(found.digests)) if seed is None else seed
    if seed not in found.digests:
        raise ConfigError(f"--seed {seed}: {row} has the seeds {ranges(found.digests)}.")
    return _verify(found, seed, keep, json)


@dataclass(frozen=True)
class Verdict:
    """The comparison of a run with a row's seed.

    Attributes:
        parts: The first difference from the row's run; ``None`` if there is none.
        elsewhere: Differences of machine and packages, because of which bits cannot be expected.
        was: Score of the row's seed.
        expected: Lowest and highest score to expect.
        why: What these are.
        passed: Whether the bits are the same or, on another machine, the score is in range.
    """

    row: str
    seed: int
    parts: str | None
    elsewhere: Sequence[str]
    score: float
    was: float
    expected: tuple[float, float]
    why: str
    passed: bool


def judge(row: ResultRow, seed: int, digest: RunDigest, here: Mapping[str, str]) -> Verdict:
    """Compare the run of a seed, ``digest``, with that of the row; ``here`` is the machine."""
    from ..show.results.result_rows import changed
    from ..statistics import prediction_interval

    found, was = prediction_interval(row.scores), row.digests[seed]
    low, high, why = found.low, found.high, "where 95 of 100 further seeds would be"
    if low is None or high is None:
        low, high = min(row.scores), max(row.scores)
        why = f"from the worst to the best of its seeds ({found.method})"
    parts, elsewhere = was.first_difference(digest), changed(row.surroundings, here)
    passed = parts is None or (bool(elsewhere) and low <= digest.score <= high)
    return Verdict(
        row.name, seed, parts, elsewhere, digest.score, was.score, (low, high), why, passed
    )


def _verify(row: ResultRow, seed: int, keep: Path | None, json: bool) -> int:
    from ..show.results.result_rows import read_digest, surroundings

    recipe, was = row.recipe, row.digests[seed]
    with workplace("verify-results", keep and keep.absolute(), _check_empty) as place:
        cost = output.duration(row.cpu_seconds / len(row.digests))
        output.note(f"training {was.frames:,} frames, which took {cost} of a core in the row")
        try:
            if recipe.prepare:
                _train(recipe.prepare, place, place / "prepared")
            run = place / row.name / f"seed{seed}"
            _train(recipe.of_seed(seed), place, run.parent if recipe.together else run)
        except ScriptFailedError as error:
            output.note(f"error: {error}\nWhat there is, is in {place}")
            return 1
        digest = read_digest(run, was.metrics)
        verdict = judge(row, seed, digest, surroundings(recipe.packages))
        if verdict.passed and keep is None:
            shutil.rmtree(place)
        else:
            output.note(f"the run is in {run}")
    if json:
        output.print_json({**vars(verdict), "identical": verdict.parts is None})
    else:
        _print(verdict, digest)
    return 0 if verdict.passed else 1


def _train(words: Sequence[str], place: Path, run: Path) -> None:
    """Train with the row's command line in a directory that holds nothing else."""
    output.note(f"$ hooktrainer train {shlex.join(words)} --run-dir {run}")
    command = [sys.executable, "-m", "hooktrainer", "train", *words]
    run.parent.mkdir(parents=True, exist_ok=True)
    # Floating-point sums depend on the number of threads.
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with Script(command, run, place / f"{run.name}.log", cwd=place, env=threads) as script:
        script.wait()


def _print(verdict: Verdict, digest: RunDigest) -> None:
    score, was, low, high = map(output.number, (verdict.score, verdict.was, *verdict.expected))
    if verdict.parts is None:
        output.line(
            f"identical: {len(digest.metrics)} metrics at {len(digest.moments)} frames, and the "
            f"parameters, are bit for bit those of {verdict.row}, seed {verdict.seed}; it scores "
            f"{score}"
        )
        return
    output.line(f"different: {verdict.parts}")
    if not verdict.elsewhere:
        output.line("processor, system and packages are those of the row: the bits should be too")
        return
    output.line(f"bits cannot be expected to be the same: {'; '.join(verdict.elsewhere)}")
    output.line(
        f"so the score was compared: {score}, of the row's seed {was}; it should be between {low} "
        f"and {high}, {verdict.why}: {'it is' if verdict.passed else 'it is not'}"
    )


def _list(json: bool) -> int:
    from ..show.report.analysis import interval_text
    from ..show.results.result_rows import read_rows
    from ..statistics import interval

    columns: dict[str, output.Column] = {
        "row": "row",
        "seeds": lambda row: len(row["seeds"]),
        "IQM of the return": lambda row: interval_text(interval(row["scores"])),
        "frames a seed": lambda row: round(sum(row["frames"]) / len(row["frames"])),
        "CPU time a seed": lambda row: output.duration(row["cpu_seconds"] / len(row["seeds"])),
    }
    names = ("command", "scores", "frames", "cpu_seconds", "commit", "surroundings")
    rows = [
        {"row": row.name, "seeds": list(row.digests), **{n: getattr(row, n) for n in names}}
        for row in read_rows().values()
    ]
    output.print_records(rows, columns, json=json)
    if not json:
        output.line("hooktrainer verify-results ROW trains a seed of one again, and compares it.")
    return 0


def _check_empty(keep: Path) -> None:
    if os.listdir(keep):
        raise FileExistsError(f"{keep} is not empty; choose another --keep.")
