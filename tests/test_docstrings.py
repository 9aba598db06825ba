"""The examples of docstrings run, and print what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

import hooktrainer
from hooktrainer.testing import tiny_trainer

ROOT = Path(hooktrainer.__file__).parent
PACKAGES = ("algorithms", "collect", "hooks", "networks", "objectives", "optim", "replay", "run")
LONG = {"sweep/sweep.py"}  # trains many times
FILES = [
    name
    for file in sorted(ROOT.rglob("*.py"))
    if ">>> " in file.read_text() and (name := file.relative_to(ROOT).as_posix()) not in LONG
]


class Checker(doctest.OutputChecker):
    """An example that shows no output may have some."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an example need not import or make."""
    monkeypatch.chdir(tmp_path)
    packages = [hooktrainer, *(importlib.import_module(f"hooktrainer.{p}") for p in PACKAGES)]
    names = {name: getattr(one, name) for one in packages for name in dir(one) if name[0] != "_"}
    trainer = tiny_trainer(total_frames=20)
    loss = trainer.loss_module
    made = {"trainer": trainer, "loss_module": loss, "batch": next(iter(trainer.collector))}
    actor = hooktrainer.networks.CategoricalPolicy(hooktrainer.networks.mlp(4, 2))
    critic = hooktrainer.networks.ValueNetwork(hooktrainer.networks.mlp(4, 1))
    return {**names, **made, "actor": actor, "critic": critic, "torch": torch, "spaces": spaces}


@pytest.mark.parametrize("file", FILES)
def test_the_examples_of_a_file_run(file: str, known: dict[str, Any]) -> None:
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    module = importlib.import_module(f"hooktrainer.{name}")
    for test in doctest.DocTestFinder().find(module, globs={**known, **vars(module)}):
        said: list[str] = []
        doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS).run(test, out=said.append)
        assert not said, "".join(said)
