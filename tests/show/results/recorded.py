"""Runs with metrics and a last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hooktrainer.store import CheckpointManager

CURVE = ((200, 10.0), (400, 20.5), (600, 30.25))


def write_recorded(
    run: Path, curve: tuple[tuple[int, float], ...] = CURVE, *, weight: float = 0.5, **more: Any
) -> Path:
    """A run with those evaluations, a loss at every hundred frames, and the parameter."""
    rows = ["step,name,value\n"]
    for at in range(100, curve[-1][0] + 1, 100):
        rows.append(f"{at},loss/a,{more.get(f'loss_{at}', 1 / at)!r}\n")
        rows.append(f"{at},time/step,{more.get('seconds', 1.0)!r}\n")
        rows += [f"{at},eval/return,{value!r}\n" for frames, value in curve if frames == at]
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text("".join(rows))
    state = {
        "format": 1,
        "components": {
            "loss_module": {"weight": torch.tensor([weight]), "extra": {"count": 1}},
            "progress": {"seconds": more.get("seconds", 1.0)},
        },
    }
    with CheckpointManager(run / "checkpoints", config={}) as manager:
        manager.save(state, frames=curve[-1][0], optim_steps=1, metrics={})
    return run
