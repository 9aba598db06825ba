"""Names that are imported when they are first used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hooktrainer
from hooktrainer.base.lazy import names_listed

ROOT = Path(hooktrainer.__file__).parent
LAZY = [file for file in ROOT.rglob("__init__.py") if "attach(__name__" in file.read_text()]


def run(code: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("file", LAZY, ids=lambda file: file.parent.name)
def test_no_name_is_that_of_a_module_beside_it(file):
    """Whoever imported the module would find it in place of the name."""
    modules = {path.stem for path in file.parent.iterdir() if path.suffix == ".py"}
    assert {name for name, (module, _) in names_listed(file).items() if module} & modules == set()


@pytest.fixture
def package(tmp_path):
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    (tmp_path / "house" / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from hooktrainer.base.lazy import attach\n"
        "if TYPE_CHECKING:\n"
        "    from . import room as room\n"
        "    from .room import *\n"
        "    from .other import thing as renamed\n"
        "else:\n"
        "    __getattr__, __dir__, __all__ = attach(__name__, __file__)\n"
    )
    (room / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from hooktrainer.base.lazy import attach\n"
        "if TYPE_CHECKING:\n"
        "    from .chair import Chair as Chair\n"
        "else:\n"
        "    __getattr__, __dir__, __all__ = attach(__name__, __file__)\n"
    )
    (room / "chair.py").write_text("class Chair: pass\n")
    (tmp_path / "house" / "other.py").write_text("thing = 3\n")
    (tmp_path / "house" / "broken.py").write_text("import not_there_at_all\n")
    return tmp_path


def test_nothing_is_imported_before_it_is_used(package):
    code = (
        "import sys, house\n"
        "print(*sorted(m for m in sys.modules if m.startswith('house')))\n"
        "print(house.renamed, *house.__all__, 'room' in dir(house))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('house')))\n"
        "print(house.Chair is house.room.Chair, house.Chair.__module__)\n"
    )
    assert run(code, package).splitlines() == [
        "house",
        "3 Chair renamed True",
        "house house.other",
        "True house.room.chair",
    ]
