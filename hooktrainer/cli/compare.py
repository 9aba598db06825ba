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
from ..store import find
from ..store.diff import Difference, compare_trees
from ..store.run_dir import RunDir
from ..store.stored import Checkpoint

Series = Mapping[str, Sequence[tuple[int, float]]]
"""Metric name to ``(step, value)`` pairs."""


@dataclass(frozen=True)
class Compared:
    """The comparison of one part of two runs."""

    part: str
    leaves: int
    """Number of tensors, numbers and texts compared."""
    found: list[Difference]


def compare_runs(left: Path, right: Path, ignore: Sequence[str] = ()) -> list[Compared]:
    """Compare the latest checkpoints, the metrics and the TensorBoard scalars of two runs.

    Times are left out, and so are paths that match a pattern of ``ignore``. Logs are read from the
    run's directory or, if it has none, from its subdirectories.
    """
    states = [Checkpoint.open(find("latest", run)[0]).load() for run in (left, right)]
    compared = compare_states(*without_clock(*states), ignore)
    rows = [_read_rows(run) for run in (left, right)]
    compared.append(compare_series("metrics", "metrics.csv", rows[0], rows[1], ignore))
    events = [_read_events(run) for run in (left, right)]
    compared.append(compare_series("events", "tensorboard", events[0], events[1], ignore))
    return compared


def compare_states(left: Any, right: Any, ignore: Sequence[str] = ()) -> list[Compared]:
    """Compare two state trees, part by part."""
    compared = []
    for part, (mine, other) in _parts(left, right).items():
        found = [d for d in compare_trees(mine, other) if not is_ignored(d.path, ignore)]
        compared.append(Compared(part, _count(mine), found))
    return compared


def compare_series(
    part: str, file: str, left: Series, right: Series, ignore: Sequence[str] = ()
) -> Compared:
    """Compare metrics, value by value; NaN equals NaN."""
    leaves, found = 0, []
    for name in {**left, **right}:
        if name.startswith("time/") or is_ignored(f"{file}/{name}", ignore):
            continue
        for mine, other in zip_longest(left.get(name, ()), right.get(name, ())):
            leaves += mine is not None
            if repr(mine) != repr(other):
                found.append(Difference(f"{file}/{name}", _row(mine), _row(other)))
    return Compared(part, leaves, found)


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches one of the patterns; ``*`` matches slashes too."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def without_clock(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two trainers' states without times; states of anything else are returned unchanged."""
    if not (_is_trainer_state(left) and _is_trainer_state(right)):
        return left, right
    both = left["components"], right["components"]
    timed = {
        name
        for components in both
        for name, state in components.items()
        if name.startswith("logger/") or _counts_seconds(name, state)
    }
    kept = [
        {name: _timeless(name, state) for name, state in components.items() if name not in timed}
        for components in both
    ]
    return {**left, "components": kept[0]}, {**right, "components": kept[1]}


def _is_trainer_state(state: Any) -> bool:
    return isinstance(state, Mapping) and isinstance(state.get("components"), Mapping)


def _counts_seconds(name: str, state: Any) -> bool:
    return name.startswith("cadence/") and state["unit"] == "seconds"


def _timeless(name: str, state: Any) -> Any:
    if name == "progress":
        return {key: value for key, value in state.items() if key != "seconds"}
    if name == "metrics":
        return {
            key: {n: v for n, v in value.items() if not n.startswith("time/")}
            if isinstance(value, Mapping)
            else value
            for key, value in state.items()
        }
    return state


def _parts(left: Any, right: Any) -> dict[str, tuple[Any, Any]]:
    """Split two states into parts named for people."""
    if not (_is_trainer_state(left) and _is_trainer_state(right)):
        return {"state": (left, right)}
    mine, other = left["components"], right["components"]
    parts: dict[str, tuple[Any, Any]] = {}
    for name, state in {**mine, **other, **mine}.items():
        pair = parts.setdefault(_part_of(name, state), ({"components": {}}, {"components": {}}))
        for components, subtree in zip((mine, other), pair, strict=True):
            if name in components:
                subtree["components"][name] = components[name]
    parts["random state"] = ({"rng": left.get("rng")}, {"rng": right.get("rng")})
    return parts


def _part_of(name: str, state: Any) -> str:
    if name == "loss_module":
        return "parameters"
    if name.startswith("hook/"):
        if _holds(state, {"param_groups"}):
            return "optimizer"
        return "replay buffer" if _holds(state, {"storage", "_storage"}) else "hooks"
    if name in ("progress", "metrics") or name.startswith("cadence/"):
        return "counters"
    return name


def _holds(state: Any, keys: set[str]) -> bool:
    """Return whether any dict of a tree has one of some keys."""
    if not isinstance(state, dict):
        return False
    return not keys.isdisjoint(state) or any(_holds(child, keys) for child in state.values())


def _count(tree: Any) -> int:
    if isinstance(tree, Mapping | TensorDictBase):
        return sum(map(_count, tree.values()))
    if isinstance(tree, list | tuple):
        return sum(map(_count, tree))
    return 1


def _read_rows(run: Path) -> Series:
    return _joined(read_csv(path) for path in _logs(run, RunDir(run).metrics.name))


def _read_events(run: Path) -> Series:
    return _joined(read_scalars(path) for path in _logs(run, RunDir(run).logs.name))


def _logs(run: Path, name: str) -> list[Path]:
    """Find a run's logs in its directory or, of a logger that the script made, below it."""
    own = run / name
    if own.exists():
        return [own]
    found: list[Path] = []
    last: dict[str, tuple[str, int, Path]] = {}
    for log in sorted(run.glob(f"*/{name}")):
        state = RunDir(log.parent).read()
        if "experiment" not in state:
            found.append(log)
        else:  # a logger that restarts after a kill has a new directory each time
            key = str(state.get("started")), len(log.parent.name), log
            experiment = str(state["experiment"])
            last[experiment] = max(last.get(experiment, key), key)
    return found + [log for *_, log in last.values()]


def _joined(parts: Iterable[Series]) -> Series:
    joined: dict[str, list[tuple[int, float]]] = {}
    for part in parts:
        for name, rows in part.items():
            joined.setdefault(name, []).extend(rows)
    return joined


def _row(row: tuple[int, float] | None) -> str:
    return "absent" if row is None else f"{row[1]!r} at step {row[0]}"
