from __future__ import annotations

import sys

import pytest

import hooktrainer
from hooktrainer import available_hooks


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package that announces hooks: ``package("name = module:object", …)``."""

    def install(*entries: str) -> None:
        (tmp_path / "my_hooks.py").write_text(
            "from hooktrainer import TrainerHookBase\nclass Histogram(TrainerHookBase):\n    pass\n"
        )
        (tmp_path / "broken_hooks.py").write_text("raise RuntimeError('broken at import')\n")
        info = tmp_path / "my_hooks-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-hooks\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[hooktrainer.hooks]", *entries, ""]))
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    for name in ("my_hooks", "broken_hooks"):
        sys.modules.pop(name, None)


def test_a_packages_hook_is_found(package):
    package("histogram = my_hooks:Histogram")
    found = available_hooks()
    assert found["histogram"] is sys.modules["my_hooks"].Histogram
    assert issubclass(found["histogram"], hooktrainer.TrainerHookBase)


@pytest.mark.parametrize("entry", ["bad = broken_hooks:X", "bad = no_such_module:X"])
def test_a_broken_one_is_warned_of_and_the_others_stay(package, entry):
    package(entry, "histogram = my_hooks:Histogram")
    with pytest.warns(UserWarning, match="'bad'.* is left out"):
        found = available_hooks()
    assert "bad" not in found
    assert "histogram" in found
