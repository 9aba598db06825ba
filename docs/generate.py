"""Writes into the pages what must never disagree with the code, each time they are built.

A page says where: ``<!-- hook-points: loop -->`` and ``<!-- hook-points: table -->``. MkDocs calls
`on_page_markdown` for every page.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from hooktrainer import hook_points


def loop() -> str:
    """The loop, as `hooktrainer.hook_points` draws it."""
    drawing = re.search(r"::\n\n((?:    .*\n|\n)+)", hook_points.__doc__ or "")
    if drawing is None:
        raise ValueError("the docstring of hooktrainer.hook_points draws no loop")
    return textwrap.dedent(drawing[1]).strip()


def table() -> str:
    """One row a hook point: what it is called with, may return, is for, and how often it comes."""
    rows = [
        "| hook point | kind | is called with | may return | passed | typical use |",
        "|---|---|---|---|---|---|",
    ]
    for point in hook_points.HOOK_POINTS:
        receives = ", ".join(f"`{name}`" for name in point.receives) or "nothing"
        passed = "every optimizer step" if point.per_step else "every batch"
        rows.append(
            f"| `{point}` | {point.kind} | {receives} | {point.returns} | {passed} | {point.use} |"
        )
    return "\n".join(rows)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of one page."""
    return markdown.replace("<!-- hook-points: loop -->", f"```python\n{loop()}\n```").replace(
        "<!-- hook-points: table -->", table()
    )
