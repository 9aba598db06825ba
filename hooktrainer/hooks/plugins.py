"""Hooks that other packages offer.

A package announces its hooks in its ``pyproject.toml``::

    [project.entry-points."hooktrainer.hooks"]
    gradient_histogram = "my_package.hooks:GradientHistogram"
"""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any

from .. import hooks

GROUP = "hooktrainer.hooks"


def available_hooks() -> dict[str, Any]:
    """Map names to the hooks of hooktrainer and of other packages.

    An entry point that cannot be imported, or reuses a name, causes a warning and is left out.
    """
    found: dict[str, Any] = {name: getattr(hooks, name) for name in vars(hooks)["__all__"]}
    for entry in entry_points(group=GROUP):
        try:
            if entry.name in found:
                raise ValueError("another hook has this name")
            found[entry.name] = entry.load()
        except Exception as error:  # a broken plugin must not break the others
            warnings.warn(
                f"hook {entry.name!r} ({entry.value}) is left out: {error!r}", stacklevel=2
            )
    return found
