"""Directories of finished runs."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hooktrainer import RunDir

PHASES = {"time/step": 0.1, "time/optimize": 0.06, "time/collect": 0.04, "time/fps": 1000.0}


def write_run(
    path: Path,
    returns: Sequence[float] = (10.0, 30.0, 20.0),
    *,
    experiment: str = "toy",
    seed: int = 0,
    status: str = "finished",
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> RunDir:
    """A run that was evaluated at 100, 200, … frames with the returns given."""
    run = RunDir.create(path, experiment=experiment, seed=seed)
    run.write_config({"seed": seed, "total_frames": 1000, **(options or {})})
    rows = [f"{100 * n},eval/return,{value}\n" for n, value in enumerate(returns, start=1)]
    rows += [f"{100 * len(returns)},{name},{value}\n" for name, value in PHASES.items()]
    run.metrics.write_text("".join(["step,name,value\n", *rows]))
    run.update(
        status=status,
        frames=100 * len(returns),
        optim_steps=7,
        seconds=2.5,
        metrics=dict(PHASES),
        **fields,
    )
    return run


def orphan(run: RunDir) -> RunDir:
    """Make a run one whose process is gone without having said that it ended."""
    run.update(status="running", pid=2**22 + 1, host=socket.gethostname())  # above any process
    return run
