"""How a run can end, as ``run.json`` and loggers call it."""

from __future__ import annotations

from typing import Final

ENDED: Final = ("finished", "solved", "pruned", "stopped")
"""In order: at ``total_frames``, at its goal, by a sweep, by who else asked for it."""

ENDINGS: Final = (*ENDED, "interrupted", "failed")
"""All of them."""
