"""Comparison of two runs that should be equal: their final states, metrics and events."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tensordict import TensorDictBase

from ..log import read_csv, read_scalars
from ..store import Checkpoint, compare_trees, find
from ..store.diff import Difference
from ..store.run_dir import RunDir

Series = Mapping[str, Sequence[tuple[int, float]]]
"""Metric name to ``(step, value)`` pairs."""


@dataclass(frozen=True)
class Compared:
    """The comparison of one part of two runs."""

    part: str
    """A component of the state, ``metrics.csv`` or ``tensorboard``."""
    leaves: int
    """Number of tensors, numbers and texts compared."""
    found: list[Difference]


def compare_runs(left: Path, right: Path, ignore: Sequence[str] = ()) -> list[Compared]:
    """Compare the latest checkpoints, the metrics and the TensorBoard scalars of two runs.

    Times are left out, and so are paths that match a pattern of ``ignore``.
    """
    runs = left, right
    states = [Checkpoint.open(find("latest", run)[0]).load() for run in runs]
    rows = [read_csv(run.metrics) if run.metrics.exists() else {} for run in map(RunDir, runs)]
    events = [read_scalars(RunDir(run).logs) for run in runs]
    return [
        *compare_states(*without_clock(*states), ignore),
        compare_series("metrics.csv", rows[0], rows[1], ignore),
        compare_series("tensorboard", events[0], events[1], ignore),
    ]


def compare_states(left: Any, right: Any, ignore: Sequence[str] = ()) -> list[Compared]:
    """Compare two state trees, component by component."""
    compared = []
    mine, others = _pieces(left), _pieces(right)
    for part in {**mine, **others}:
        pair = [pieces.get(part, {"components": {}}) for pieces in (mine, others)]
        found = [d for d in compare_trees(*pair) if not is_ignored(d.path, ignore)]
        compared.append(Compared(part, _count(pair[0]), found))
    return compared


def compare_series(file: str, left: Series, right: Series, ignore: Sequence[str] = ()) -> Compared:
    """Compare metrics, value by value; NaN equals NaN."""
    leaves, found = 0, []
    for name in {**left, **right}:
        if name.startswith("time/") or is_ignored(f"{file}/{name}", ignore):
            continue
        for mine, other in zip_longest(left.get(name, ()), right.get(name, ())):
            leaves += mine is not None
            if repr(mine) != repr(other):
                found.append(Difference(f"{file}/{name}", _row(mine), _row(other)))
    return Compared(file, leaves, found)


def _row(row: tuple[int, float] | None) -> str:
    return "absent" if row is None else f"{row[1]!r} at step {row[0]}"


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches one of the patterns; ``*`` matches slashes too."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def without_clock(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two trainers' states without times; states of anything else are returned unchanged."""
    if not (_is_trainer_state(left) and _is_trainer_state(right)):
        return left, right
    timed = {
        name
        for state in (left, right)
        for name, part in state["components"].items()
        if name.startswith("logger/") or (name.startswith("cadence/") and part["unit"] == "seconds")
    }

    def timeless(state: Any) -> Any:
        components = {
            name: _without_times(part) if name in ("progress", "metrics") else part
            for name, part in state["components"].items()
            if name not in timed
        }
        ranks = {"ranks": [timeless(share) for share in state["ranks"]]} if "ranks" in state else {}
        reported = _without_times(state.get("reported"))
        return {**state, "components": components, "reported": reported, **ranks}

    return timeless(left), timeless(right)


def _without_times(tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    kept = {n: v for n, v in tree.items() if n != "seconds" and not n.startswith("time/")}
    return {name: _without_times(value) for name, value in kept.items()}


def _is_trainer_state(state: Any) -> bool:
    return isinstance(state, Mapping) and isinstance(state.get("components"), Mapping)


def _pieces(state: Any) -> dict[str, Any]:
    """Split the state of a trainer into one of each component."""
    if not _is_trainer_state(state):
        return {"state": state}
    pieces = {name: {"components": {name: part}} for name, part in state["components"].items()}
    return {**pieces, "random state": {"rng": state.get("rng")}}


def _count(tree: Any) -> int:
    if isinstance(tree, Mapping | TensorDictBase):
        return sum(map(_count, tree.values()))
    return sum(map(_count, tree)) if isinstance(tree, list | tuple) else 1
