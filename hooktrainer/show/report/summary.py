"""Summaries of runs from their directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ...store.lock import is_alive
from ...store.provenance import id_in, parent_in
from ...store.run_dir import RunDir
from ..curves import Curve, read_curves


@dataclass(frozen=True)
class RunSummary:
    """The state of a run.

    `status` is as in `run.json`; ``died`` if that is ``running`` and the process is gone;
    ``unknown`` if one of its files cannot be read. `reason` is why it ended, if not at
    its last frame, or why a file cannot be read. `unit` is what `frames` counts.
    `started` and `updated` are in seconds since 1970. `last` and `best` are of `metric`; `metrics`
    has the last value of all. `forked_from` has ``run_id``, ``path`` and ``frames`` of a
    checkpoint.
    """

    path: Path
    id: str | None
    forked_from: Mapping[str, Any] | None
    experiment: str
    seed: int | None
    status: str
    reason: str | None
    frames: int
    total_frames: int | None
    unit: str
    optim_steps: int
    seconds: float
    started: float | None
    updated: float | None
    metric: str | None
    last: float | None
    best: float | None
    options: Mapping[str, Any]
    metrics: Mapping[str, float]


def units_of(runs: Sequence[RunSummary]) -> str:
    """Return what the runs count, such as ``frames``; several joined by "or"."""
    return " or ".join(sorted({run.unit for run in runs})) or "frames"


def summarize(
    run: RunDir, metric: str | None = "eval/return", *, minimize: bool = False
) -> RunSummary:
    """Return the state of a run; without a metric, no metrics file is read."""
    options: dict[str, Any] = {}
    try:
        options = run.read_config()
        return _summary(run, run.read(), options, metric, minimize)
    except (ValueError, TypeError, AttributeError, OSError) as error:  # damaged, or no run
        return _summary(run, {"reason": str(error)}, options, None, minimize)


def _summary(
    run: RunDir,
    state: Mapping[str, Any],
    options: Mapping[str, Any],
    metric: str | None,
    minimize: bool,
) -> RunSummary:
    status = str(state.get("status", "unknown"))
    if status == "running" and is_alive(run.checkpoints, state) is False:
        status = "died"
    metrics = {name: float(value) for name, value in state.get("metrics", {}).items()}
    curve = Curve.of([])
    if metric is not None:
        curve = read_curves(run, [metric]).get(metric, curve)
    best = curve.best(minimize=minimize)
    return RunSummary(
        path=run.path,
        id=id_in(state),
        forked_from=parent_in(state),
        experiment=str(state.get("experiment") or ""),
        seed=_whole(state.get("seed", options.get("seed"))),
        status=status,
        reason=state.get("reason"),
        frames=int(state.get("frames", 0)),
        total_frames=_whole(state.get("total_frames", options.get("total_frames"))),
        unit=str(state.get("unit", "frames")),
        optim_steps=int(state.get("optim_steps", 0)),
        seconds=float(state.get("seconds", 0.0)),
        started=_seconds(state.get("started")),
        updated=_seconds(state.get("updated")),
        metric=metric,
        last=float(curve.values[-1]) if len(curve.values) else metrics.get(metric or ""),
        best=None if best is None else best[1],
        options=options,
        metrics=metrics,
    )


def _whole(value: Any) -> int | None:
    """Return an option's value if it is an int."""
    return value if type(value) is int else None


def _seconds(stamp: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(stamp).timestamp()
    return None
