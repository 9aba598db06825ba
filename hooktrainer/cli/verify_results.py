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
from .killing import Script, ScriptFailedError, terminable, workplace

if TYPE_CHECKING:
    from ..show.results.result_rows import ResultRow, RunDigest

RowName = Annotated[str | None, Positional, shown_as("[ROW]")]

# Floating-point sums depend on the number of threads.
_THREADS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


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
    return _verify(found, _known_seed(found, seed), keep, json)


@dataclass(frozen=True)
class Verdict:
    """The comparison of a run with a row's seed.

    Attributes:
        parts: The first difference from the row's run; ``None`` if there is none.
        elsewhere: Differences of machine and packages, because of which bits cannot be expected.
        score: Score of the run.
        was: Score of the row's seed.
        expected: Lowest and highest score to expect.
        why: What these are.
    """

    row: str
    seed: int
    parts: str | None
    elsewhere: Sequence[str]
    score: float
    was: float
    expected: tuple[float, float]
    why: str

    @property
    def passed(self) -> bool:
        """Whether the bits are the same or, on another machine, the score is in range."""
        low, high = self.expected
        return self.parts is None or (bool(self.elsewhere) and low <= self.score <= high)


def judge(row: ResultRow, seed: int, digest: RunDigest, here: Mapping[str, str]) -> Verdict:
    """Compare the run of a seed, ``digest``, with that of the row; ``here`` is the machine."""
    from ..show.results.result_rows import changed
    from ..statistics import prediction_interval

    found = prediction_interval(row.scores)
    if found.low is None or found.high is None:
        expected = min(row.scores), max(row.scores)
        why = f"from the worst to the best of its seeds ({found.method})"
    else:
        expected, why = (found.low, found.high), "where 95 of 100 further seeds would be"
    was = row.digests[seed]
    elsewhere = changed(row.surroundings, here)
    return Verdict(
        row.name,
        seed,
        was.first_difference(digest),
        elsewhere,
        digest.score,
        was.score,
        expected,
        why,
    )


def _verify(row: ResultRow, seed: int, keep: Path | None, json: bool) -> int:
    from ..show.results.result_rows import read_digest, surroundings

    recipe, was = row.recipe, row.digests[seed]
    kept = None if keep is None else keep.absolute()
    with workplace("verify-results", kept, _check_empty) as place, terminable():
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
    _report(verdict, digest, json)
    return 0 if verdict.passed else 1


def _train(words: Sequence[str], place: Path, run: Path) -> None:
    """Train with the row's command line in a directory that holds nothing else."""
    output.note(f"$ hooktrainer train {shlex.join(words)} --run-dir {run}")
    command = [sys.executable, "-m", "hooktrainer", "train", *words]
    run.parent.mkdir(parents=True, exist_ok=True)
    with Script(command, run, place / f"{run.name}.log", cwd=place, env=_THREADS) as script:
        script.wait()


def _report(verdict: Verdict, digest: RunDigest, json: bool) -> None:
    if json:
        result = {**vars(verdict), "passed": verdict.passed, "identical": verdict.parts is None}
        output.print_json(result)
        return
    if verdict.parts is None:
        output.line(
            f"identical: {len(digest.metrics)} metrics at {len(digest.moments)} frames, and the "
            f"parameters, are bit for bit those of {verdict.row}, seed {verdict.seed}; it scores "
            f"{output.number(verdict.score)}"
        )
        return
    output.line(f"different: {verdict.parts}")
    if not verdict.elsewhere:
        output.line(
            "processor, system and packages are those of the row: the bits should be the same"
        )
        return
    low, high = map(output.number, verdict.expected)
    output.line(f"bits cannot be expected to be the same: {'; '.join(verdict.elsewhere)}")
    output.line(
        f"so the score was compared: {output.number(verdict.score)}, of the row's seed "
        f"{output.number(verdict.was)}; it should be between {low} and {high}, {verdict.why}: "
        f"{'it is' if verdict.passed else 'it is not'}"
    )


def _known_seed(row: ResultRow, seed: int | None) -> int:
    if seed is None:
        return next(iter(row.digests))
    if seed not in row.digests:
        raise ConfigError(f"--seed {seed}: {row.name} has the seeds {ranges(row.digests)}.")
    return seed


def _list(json: bool) -> int:
    from ..show.report.analysis import interval_text
    from ..show.results.result_rows import read_rows
    from ..statistics import interval

    rows = read_rows().values()
    if json:
        output.print_json([_row_json(row) for row in rows])
        return 0
    heads = ["row", "seeds", "IQM of the return", "frames a seed", "CPU time a seed"]
    cells = [
        (
            row.name,
            len(row.digests),
            interval_text(interval(row.scores)),
            f"{sum(row.frames) / len(row.frames):,.0f}",
            output.duration(row.cpu_seconds / len(row.digests)),
        )
        for row in rows
    ]
    output.print_table(heads, cells, right=heads[1:])
    output.line("hooktrainer verify-results ROW trains a seed of one again, and compares the bits.")
    return 0


def _row_json(row: ResultRow) -> dict[str, object]:
    return {
        "row": row.name,
        "command": row.command,
        "seeds": list(row.digests),
        "scores": row.scores,
        "frames": row.frames,
        "cpu_seconds": row.cpu_seconds,
        "commit": row.commit,
        "surroundings": row.surroundings,
    }


def _check_empty(keep: Path) -> None:
    if os.listdir(keep):
        raise FileExistsError(f"{keep} is not empty; choose another --keep.")
