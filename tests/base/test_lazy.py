"""Names that are imported when they are first used."""

from __future__ import annotations

from pathlib import Path

import pytest

import hooktrainer
from hooktrainer.base.lazy import names_listed

ROOT = Path(hooktrainer.__file__).parent
LAZY = [file for file in ROOT.rglob("__init__.py") if "attach(__name__" in file.read_text()]


@pytest.mark.parametrize("file", LAZY, ids=lambda file: file.parent.name)
def test_no_name_is_that_of_a_module_beside_it(file):
    """Importing the module would bind it in place of the name."""
    modules = {path.stem for path in file.parent.iterdir() if path.suffix == ".py"}
    assert {name for name, (module, _) in names_listed(file).items() if module} & modules == set()
