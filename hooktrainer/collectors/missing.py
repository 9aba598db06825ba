"""Environments whose packages are not installed: what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.error import DependencyNotInstalled

from ..errors import MissingPackageError

_OURS = ("box2d", "mujoco")


@contextmanager
def explain_missing() -> Iterator[None]:
    """Turn Gymnasium's error about a missing package into one that names our extra.

    Raises:
        MissingPackageError: Instead of ``gymnasium.error.DependencyNotInstalled``.
    """
    try:
        yield
    except DependencyNotInstalled as error:
        extra = re.search(r"gymnasium\[([\w-]+)\]", str(error))
        ours = extra is not None and extra[1] in _OURS
        line = f"pip install 'hooktrainer[{extra[1]}]'" if extra and ours else str(error)
        raise MissingPackageError(
            f"the environment needs a package that is not installed: {line}"
        ) from error
