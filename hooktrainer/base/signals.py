"""The signals that end a run."""

from __future__ import annotations

import signal
from typing import Final

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""SIGINT, SIGTERM and, where there is one, SIGHUP."""
