"""What goes wrong between ranks."""

from __future__ import annotations


class RanksError(RuntimeError):
    """The ranks of a run are no longer together: one is gone, silent, or somewhere else."""
