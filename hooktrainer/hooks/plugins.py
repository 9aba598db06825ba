"""Hooks that other packages offer.

A package announces its hooks in its ``pyproject.toml``::

    [project.entry-points."hooktrainer.hooks"]
    gradient_histogram = "my_package.hooks:GradientHistogram"
"""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from .. import hooks
from ..base.lazy import names_listed

GROUP = "hooktrainer.hooks"


def available_hooks() -> dict[str, Any]:
    """Name to class (or function) of every hook: hooktrainer's own and those of other packages.

    A package whose hook cannot be imported is warned of and left out; one that reuses a name of
    hooktrainer's does not replace it.
    """
    found: dict[str, Any] = {
        name: getattr(hooks, name) for name in names_listed(Path(hooks.__file__))
    }
    for entry in entry_points(group=GROUP):
        if entry.name in found:
            warnings.warn(
                f"entry point {entry.name!r} of {GROUP!r} ({entry.value}) has the name of another "
                "hook and is left out; rename it.",
                stacklevel=2,
            )
            continue
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # a broken plugin must not break the others
            warnings.warn(
                f"hook {entry.name!r} ({entry.value}) cannot be imported: {error!r}", stacklevel=2
            )
    return found
