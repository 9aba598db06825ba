"""One name, one idea: no two public classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hooktrainer

PACKAGE = Path(hooktrainer.__file__).parent


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
