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


def test_the_package_alone_does_not_import_torch():
    code = (
        "import sys, hooktrainer, hooktrainer.cli; "
        "assert 'torch' not in sys.modules; "
        "from hooktrainer import Every; assert 'torch' not in sys.modules; "
        "from hooktrainer import Trainer; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_trainer_loads_what_it_needs_and_nothing_else():
    """Of the rooms that a trainer uses, not all; of the others, nothing."""
    code = (
        "import sys\nfrom hooktrainer import Trainer\n"
        "print(*(m.removeprefix('hooktrainer.') for m in sys.modules if 'hooktrainer.' in m))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    rooms = {name.partition(".")[0] for name in loaded}
    outside = {"base", "collect", "errors", "hooks", "log", "loop", "store", "torchrl", "trainer"}
    assert rooms == outside
    assert {n for n in loaded if n.startswith("hooks.")} == {"hooks.optimizer"}
    unused = ("builders", "torchrl.checkpoint", "store.manager", "log.csv", "log.remote")
    unused += ("collect.vector", "collect.overlap", "collect.written")
    assert not [name for name in loaded if name.startswith(unused)]
    assert len(loaded) <= 85


def test_no_public_name_means_two_things():
    meanings: dict[str, dict[int, str]] = {}
    packages = [m.name for m in walk_packages(hooktrainer.__path__, "hooktrainer.") if m.ispkg]
    for package in map(import_module, ["hooktrainer", *packages]):
        for name in getattr(package, "__all__", ()):
            value = getattr(package, name)
            meanings.setdefault(name, {})[id(value)] = f"{package.__name__}.{name}"
    assert [list(where.values()) for where in meanings.values() if len(where) > 1] == []
