"""`Meeting`: where runs that train side by side wait for each other's evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..loop.company import COLLECTING


class Meeting:
    """A `Server` that computes nothing: who asks goes on when the others have come there too.

    Without it the first would have begun their next batch before the last has said what the first
    are compared with.

    Attributes:
        rank: See `hooktrainer.loop.company.Server`; above whatever computes something.
    """

    rank = COLLECTING + 1

    def serve(self, requests: Sequence[Any]) -> Sequence[Any]:
        """Nothing, for each."""
        return [None for _ in requests]
