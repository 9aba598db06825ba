"""What an `OverlappedCollector` adds to a batch and to its collector's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

VERSION = ("collector", "policy_version")
"""Where a batch says how many batches the learner had trained on when its weights were taken."""

OVERLAP = "overlap"
"""Key of the state by which that of an `OverlappedCollector` is known."""


def stamped(batch: TensorDictBase, version: int) -> TensorDictBase:
    """The batch, with the version of the weights that collected it."""
    versions = torch.full(batch.batch_size, version, dtype=torch.int64, device=batch.device)
    return batch.set(VERSION, versions)


def version_of(batch: TensorDictBase) -> int:
    """Version of the weights that collected a batch."""
    return int(batch.get(VERSION).flatten()[0])


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
