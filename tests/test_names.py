"""One name, one idea: no two files of the package share a name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import hooktrainer

PACKAGE = Path(hooktrainer.__file__).parent
SAME_THING = {
    "config",  # the fields of every run, and those of every algorithm beside them
    "trainer",  # the trainer, and how `builders` makes one
}


def test_files_of_one_name_are_two_views_of_one_thing():
    """A command has its layer's name, an algorithm that of its loss; else a name is one file's."""
    homes: dict[str, set[str]] = defaultdict(set)
    for file in PACKAGE.rglob("*.py"):
        if file.stem not in ("__init__", *SAME_THING):
            homes[file.stem].add(file.parent.relative_to(PACKAGE).as_posix())
    doubled = {
        name: folders
        for name, folders in homes.items()
        if len(folders - {"cli"}) > 1 and folders != {"algorithms", "objectives"}
    }
    assert len(homes) > 200
    assert doubled == {}
