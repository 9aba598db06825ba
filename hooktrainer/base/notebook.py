"""Jupyter notebooks: whether this process is a kernel, and the style of HTML in a cell's output."""

from __future__ import annotations

import sys
from collections.abc import Iterable

# Text has the color of the output around it, so that dark and light themes both fit.
_STYLE = """<style>
.hooktrainer{font:13px/1.5 system-ui,sans-serif;max-width:56rem;--c:#3987e5}
.hooktrainer .row{display:flex;flex-wrap:wrap;gap:.5rem 2rem;align-items:flex-start}
.hooktrainer .bar{height:4px;margin:.3rem 0 .5rem;border-radius:2px;overflow:hidden;
background:color-mix(in srgb,currentColor 15%,transparent)}
.hooktrainer .bar div{height:100%;background:var(--c)}
.hooktrainer p{margin:.2rem 0}.hooktrainer .dim,.hooktrainer th,.hooktrainer figcaption{opacity:.7}
.hooktrainer figure{margin:0}.hooktrainer figure.chart{flex:1 1 22rem;max-width:36rem}
.hooktrainer img{display:block;max-width:100%}
.hooktrainer svg{display:block;width:100%;height:auto}
.hooktrainer svg text{fill:currentColor;opacity:.7;font:11px system-ui,sans-serif}
.hooktrainer .grid{stroke:currentColor;opacity:.15}
.hooktrainer .mean{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;
stroke-linecap:round}
.hooktrainer table{margin:0;border-collapse:collapse;font-variant-numeric:tabular-nums}
.hooktrainer tr,.hooktrainer th,.hooktrainer td{border:0;background:none;font-size:13px}
.hooktrainer th,.hooktrainer td{padding:.1rem 1rem .1rem 0;font-weight:400;text-align:left;
white-space:pre}
.hooktrainer td.n{text-align:right}
</style>"""


def in_kernel() -> bool:
    """Return whether this process runs the cells of a notebook. Imports nothing."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    return getattr(shell, "kernel", None) is not None  # a terminal's shell has none


def as_output(body: str) -> str:
    """Return HTML for the output of a cell, in the common style."""
    return f'{_STYLE}<div class="hooktrainer">{body}</div>'


def rows(cells: Iterable[tuple[str, ...]]) -> str:
    """Return a table of HTML cells: in every row a name, then numbers."""
    lines = (
        "".join([f"<tr><th>{name}</th>", *(f'<td class="n">{n}</td>' for n in numbers), "</tr>"])
        for name, *numbers in cells
    )
    return f"<table>{''.join(lines)}</table>"
