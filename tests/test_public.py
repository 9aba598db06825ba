"""The package's names are there, and cost nothing until one of them is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import walk_packages

import pytest

import hooktrainer


def test_every_name_is_there_and_completed_by_tab():
    for name in hooktrainer.__all__:
        assert getattr(hooktrainer, name) is not None
    assert {"Trainer", "Every", "mask_batch", *hooktrainer.hooks.__all__} <= {*hooktrainer.__all__}
    assert {*hooktrainer.__all__, "__version__", "algorithms"} <= set(dir(hooktrainer))


def test_a_star_import_gives_all_of_them():
    names: dict[str, object] = {}
    exec("from hooktrainer import *", names)
    assert set(hooktrainer.__all__) <= set(names)


def test_modules_are_imported_when_they_are_asked_for():
    assert hooktrainer.testing.tiny_trainer
    assert hooktrainer.hooks.Evaluate is hooktrainer.Evaluate


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'hooktrainer' has no attribute 'Trianer'"):
        hooktrainer.Trianer  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Trianer'"):
        exec("from hooktrainer import Trianer")


IMPORTS = """
import sys, hooktrainer, hooktrainer.cli
from hooktrainer import Every
assert "torch" not in sys.modules
from hooktrainer import Trainer
print(*sys.modules)
import hooktrainer.run.recipe
print(*sys.modules)
"""


def test_a_program_loads_what_it_needs_and_nothing_else():
    """The package alone no torch, a trainer not all of the rooms that it uses, runs no gallery."""
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    trainer, recipe = (line.split() for line in done.stdout.splitlines())
    assert "torch" in trainer
    assert [name for name in recipe if name.startswith("hooktrainer.show.gallery")] == []
    loaded = {n.removeprefix("hooktrainer.") for n in trainer if n.startswith("hooktrainer.")}
    rooms = {name.partition(".")[0] for name in loaded}
    outside = {"base", "cli", "collect", "errors", "hooks", "log", "loop", "store", "torchrl"}
    assert rooms == {*outside, "trainer"}
    assert {n for n in loaded if n.startswith("hooks.")} == {"hooks.optimizer"}
    unused = ("builders", "torchrl.checkpoint", "store.manager", "log.csv", "log.remote")
    unused += ("collect.vector", "collect.overlap", "collect.written")
    assert not [name for name in loaded if name.startswith(unused)]
    assert len(loaded) <= 90


def test_no_public_name_means_two_things():
    meanings: dict[str, dict[int, str]] = {}
    packages = [m.name for m in walk_packages(hooktrainer.__path__, "hooktrainer.") if m.ispkg]
    for package in map(import_module, ["hooktrainer", *packages]):
        for name in getattr(package, "__all__", ()):
            value = getattr(package, name)
            meanings.setdefault(name, {})[id(value)] = f"{package.__name__}.{name}"
    assert [list(where.values()) for where in meanings.values() if len(where) > 1] == []
