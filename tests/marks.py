"""Marks of parametrized tests: a few cases stay quick, the others are slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_except(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Return the cases as parameters, all marked slow but the quick ones.

    Args:
        cases: Values of a parameter, or tuples of values.
        quick: The cases that ``make test`` runs, or their indices.
    """
    cases = list(cases)
    kept = [case if type(case) is int else cases.index(case) for case in quick]
    return [
        case
        if place in kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
