"""One name, one idea: no two public classes of the package, and no two files, share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hooktrainer

PACKAGE = Path(hooktrainer.__file__).parent
SAME_THING = {
    "config",  # the fields of every run, and those of every algorithm beside them
    "trainer",  # the trainer, and how `builders` makes one
}


def classes(body: list[ast.stmt]) -> Iterator[str]:
    """Names of the public classes of a module, also of those below a condition."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.If):
            yield from classes([*node.body, *node.orelse])


def test_no_two_public_classes_share_a_name():
    homes: dict[str, set[str]] = defaultdict(set)
    for file in PACKAGE.rglob("*.py"):
        for name in classes(ast.parse(file.read_text()).body):
            homes[name].add(file.relative_to(PACKAGE).as_posix())
    assert len(homes) > 200
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


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
