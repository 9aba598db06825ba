"""Families of environments that everybody wraps in the same way, one file a family."""

from __future__ import annotations

from .usual import UsualWrappers, usual_wrappers

__all__ = ["UsualWrappers", "usual_wrappers"]
