"""What an `OverlappedCollector` adds to its collector's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVERLAP = "overlap"
"""Key of the state by which that of an `OverlappedCollector` is known."""


def collector_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The collector's own state, counting only what was handed out.

    Batches that were collected ahead are left out: the episodes they are of are not played again.
    """
    if OVERLAP not in state:
        return state
    own = dict(state["collector"])
    if "frames" in own:
        own["frames"] = state[OVERLAP]["frames"]
    return own
