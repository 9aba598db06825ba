"""`hooktrainer regress`: train new seeds of a published row until they are as good, or worse."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from tyro.conf import Positional

from ..base.checks import named
from ..base.fs import write_atomically
from ..base.words import ranges, shell_word
from ..errors import ConfigError
from ..store.provenance import git
from . import output
from .arguments import Directory, Flag, shown_as
from .verify_results import train_row
from .verify_resume import ScriptFailedError, workplace

if TYPE_CHECKING:
    from ..show.results.result_rows import ResultRow, RowRecipe, RunDigest

Measure = Literal["score", "frames"]

_ATTEMPTS: Final = "attempts.json"


def regress(
    row: Annotated[str, Positional, shown_as("ROW")],
    /,
    *,
    against: Directory = None,
    margin: Annotated[float, shown_as("FRACTION")] = 0.1,
    by: Measure = "score",
    record: Annotated[str | None, shown_as("SEEDS")] = None,
    keep: Directory = None,
    json: Flag = False,
) -> int:
    """Train new seeds of a published row until they are shown to be as good, or to be worse.

    For continuous integration: after 3, 5, 8 and 12 seeds that are not in the row, their scores are
    compared with the published ones. If nothing has changed, the probability of "worse" is at most
    5 % over all looks. If the scores have fallen by the margin, that of "as good" is.

    Rows of your own are in a directory with a file rows.yaml, such as

        walker: {train: "ppo --env mine:Walker-v0"}

    They are trained in a directory of their own: paths of files have to be absolute.

    --record 0-9 trains these seeds, and publishes them there, in computed/, in place of earlier
    ones. With --keep, the same command continues what was interrupted.

    The exit code is 1 if the row is worse, or if training fails; 0 if not, decided or not.

    Example: hooktrainer regress ppo-cartpole --margin 0.05

    Args:
        row: name of the row
        against: directory of the rows; by default that of the results page
        margin: the loss to find, as a fraction of the published score; by default 0.1
        by: what is compared: the last evaluation, or the frames until the run stopped
        record: publish these seeds, such as 0-9, instead of comparing
        keep: keep the runs in this directory
        json: print JSON
    """
    from ..show.results.result_rows import DIRECTORY, read_recipes, read_row

    place = against or DIRECTORY
    if not 0 < margin < float("inf"):
        raise ConfigError(f"--margin {margin:g}: give a positive fraction, such as 0.1.")
    if not (place / "rows.yaml").is_file():
        raise ConfigError(f"--against {place}: there is no file rows.yaml that says how to train.")
    recipe = named("row", row, read_recipes(place))
    published = read_row(recipe, place)
    if record is not None:
        work = partial(_record, recipe, record, place)
    elif published is not None:
        work = partial(_compare, published, margin, by)
    else:
        raise ConfigError(
            f"{row} has no published seeds in {place}: publish some with hooktrainer regress {row} "
            f"--against {shell_word(place)} --record 0-9."
        )
    begun = _ATTEMPTS if record is not None else None
    with workplace("regress", keep and keep.absolute(), begun) as (runs, removal):
        try:
            return work(runs, json)
        except ScriptFailedError as error:
            removal.pop_all()
            output.note(f"error: {error}\nWhat there is, is in {runs}")
            return 1


def _compare(row: ResultRow, margin: float, by: Measure, place: Path, json: bool) -> int:
    from ..statistics import interval
    from ..statistics.regression import LOOKS, judge_regression

    before = [float(getattr(digest, by)) for digest in row.digests.values()]
    first, minimize = max(row.digests) + 1, by == "frames"
    found: list[float] = []
    decision = judge_regression(before, found, margin=margin, minimize=minimize)
    for size in LOOKS:
        begin, last = first + len(found), first + size - 1
        output.note(f"training seeds {begin} to {last} of {row.name}")
        digests = _trained(row.recipe, range(begin, last + 1), place)
        found += [float(getattr(digest, by)) for digest in digests.values()]
        decision = judge_regression(before, found, margin=margin, minimize=minimize)
        if decision.next_look is None:
            break
    center, new = interval(before).value, interval(found).value
    verdict = decision.verdict or "not decided"
    if json:
        facts = {"row": row.name, "by": by, "verdict": decision.verdict, "limit": decision.limit}
        output.print_json(facts | {"seeds": [first, last], "scores": found, "published": before})
    else:
        output.line(
            f"{verdict}: {by} {output.number(new)} over {len(found)} new seeds, published "
            f"{output.number(center)} over {len(before)}; as good is "
            f"{'below' if minimize else 'above'} {output.number(decision.limit)}"
        )
    return int(decision.verdict == "worse")


def _record(recipe: RowRecipe, words: str, directory: Path, place: Path, json: bool) -> int:
    """Train seeds, and write the row that they make."""
    from ..run.seeds import as_seeds
    from ..show.results.result_rows import ResultRow, surroundings, write_row

    seeds = as_seeds(words) or ()
    if list(seeds) != list(range(seeds[0], seeds[-1] + 1)):
        raise ConfigError(f"--record {words}: give consecutive seeds, such as 0-9.")
    described = "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"
    commit = git(*described, where=directory) or ""  # in no repository
    facts = surroundings(recipe.packages, recipe.deterministic)
    made_by = {"command": recipe.command(seeds), "commit": commit, "surroundings": facts}
    with _adding_up(place / _ATTEMPTS, made_by) as attempts:
        digests = _trained(recipe, range(seeds[0], seeds[-1] + 1), place)
    row = ResultRow(recipe, digests, facts, commit, attempts["cpu_seconds"])
    file = write_row(row, directory)
    if json:
        output.print_json({"row": row.name, "file": file, "scores": row.scores})
    else:
        output.line(f"published seeds {ranges(row.digests)} of {row.name} in {file}")
    return 0


@contextmanager
def _adding_up(file: Path, made_by: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Add the CPU seconds of the block's child processes to those of earlier attempts in a file.

    Raises:
        ConfigError: If the earlier attempts were ``made_by`` something else.
    """
    attempts = {**made_by, "cpu_seconds": 0.0, "under_way": False}
    if file.exists():
        attempts = json.loads(file.read_text(encoding="utf-8"))
    for name, value in made_by.items():
        if attempts[name] != value:
            raise ConfigError(
                f"--keep {file.parent}: its runs were begun with {name} {attempts[name]!r}, which "
                f"is now {value!r}; choose another directory, or remove it."
            )
    if attempts["under_way"]:
        output.note("an attempt was killed: its CPU time is not known, and not in the row's")
    write_atomically(file, json.dumps(attempts | {"under_way": True}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        yield attempts
    finally:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        attempts["cpu_seconds"] += (
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
        write_atomically(file, json.dumps(attempts | {"under_way": False}))


def _trained(recipe: RowRecipe, seeds: range, place: Path) -> dict[int, RunDigest]:
    from ..show.results.result_rows import read_digest

    runs = train_row(recipe, seeds[0], seeds[-1], place)
    try:
        names = list(read_digest(runs / f"seed{seeds[0]}", None, recipe.score).metrics)
        return {seed: read_digest(runs / f"seed{seed}", names, recipe.score) for seed in seeds}
    except ConfigError as error:
        raise ScriptFailedError(str(error)) from error
