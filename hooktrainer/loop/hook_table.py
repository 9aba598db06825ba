"""The table of a trainer's hooks that `Trainer.describe` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .hook_points import HOOK_POINTS


def draw_hooks(table: Sequence[Mapping[str, Any]]) -> str:
    """Every hook by point, in run order, with its cadence and its state, as lines.

    Args:
        table: What `Registry.table` returned.
    """
    heads = ("hook", "when", "priority", "saves")
    rows = [_row(entry) for entry in table]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    line = "  ".join(f"{{:<{width}}}" for width in widths)
    lines = [f"  {line.format(*heads)}".rstrip()]
    for point in HOOK_POINTS:
        lines.append(f"{point} ({point.kind})")
        here = [row for row, entry in zip(rows, table, strict=True) if entry["point"] == point]
        lines += [f"  {line.format(*row)}".rstrip() for row in here] or ["  -"]
    return "\n".join(lines)


def _row(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    saves = f"{entry['module']}: {', '.join(entry['saves'])}" if entry["saves"] else "-"
    return entry["hook"], entry["when"], f"{entry['priority']:g}", saves
