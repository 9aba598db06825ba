"""Fixtures of the command line's tests."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrainer import RunDir
from hooktrainer.cli import main
from hooktrainer.store import All, Best, CheckpointManager

sys.path.insert(0, str(Path(__file__).parent))

from cli_runs import state


class Called(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Makes a run whose checkpoints at 100, 200, … frames have the returns given."""

    def make(
        name: str = "run", returns: tuple[float, ...] = (1.0, 3.0, 2.0), **changes: float
    ) -> Path:
        path = tmp_path / name
        random.seed(0)  # part of the state
        RunDir.create(path)
        keep = All() | Best(1, "eval/return")
        with CheckpointManager(path / "checkpoints", keep=keep, config={"lr": 0.1}) as manager:
            for number, value in enumerate(returns, start=1):
                metrics: Mapping[str, float] = {"eval/return": value, "eval/std": float("nan")}
                tree = state(100 * number, **changes)
                manager.save(tree, frames=100 * number, optim_steps=number, metrics=metrics)
        return path

    return make


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Runs a command line in this process."""

    def run(*words: object) -> Called:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as error:
            code = int(error.code or 0)
        return Called(code, *capsys.readouterr())

    return run
