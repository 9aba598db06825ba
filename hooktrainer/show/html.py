"""The common style of self-contained HTML pages, light and dark, and their tables."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from .chart import COLORS

if TYPE_CHECKING:
    from ..policies import Evaluation

LIGHT = (
    *("#0b6bcb", "#d9480f", "#2b8a3e", "#9c36b5", "#0c8599"),
    *("#8f6400", "#d6336c", "#495057", "#66a80f", "#6741d9"),
)
"""Colours of lines on a light background, in order."""

_DARK = (
    *("#74b8ff", "#ffa270", "#69db7c", "#e599f7", "#66d9e8"),
    *("#ffd43b", "#ff87b4", "#ced4da", "#c0eb75", "#a99cff"),
)

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--dim:#5d6673;--line:#d9dee5;--page:#fff;--card:#f7f8fa;
%s}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#9aa4b2;--line:#333a45;--page:#15181d;
--card:#1c2027;%s}}
body{margin:0 auto;max-width:76rem;padding:1.5rem 1rem 4rem;background:var(--page);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:2rem 0 .5rem;font-weight:600}
p{color:var(--dim);margin:.25rem 0}
figure{margin:0;padding:.75rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem}figcaption{color:var(--dim);font-size:.85rem;margin-top:.35rem}
svg{width:100%%;height:auto;display:block}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.grid{stroke:var(--line)}
polyline{fill:none;stroke-linejoin:round}
.mean{stroke:var(--c);stroke-width:2}.run{stroke:var(--c);opacity:.35}
.band{fill:var(--c);opacity:.14}.point{fill:var(--c)}
.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}
.key.d1::before{border-top-style:dashed}.key.d2::before{border-top-style:dotted}
svg:hover .mean{opacity:.25}svg .mean:hover{opacity:1;stroke-width:4}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;margin-bottom:.4rem;font-size:.85rem}
.key{overflow-wrap:anywhere}.key::before{content:"";display:inline-block;width:1.4em;
border-top:.2em solid var(--c);margin-right:.45em;vertical-align:.25em}
%s
.scroll{overflow-x:auto}details{margin-top:1rem}summary{cursor:pointer}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:100%%}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;min-width:8rem;overflow-wrap:anywhere}
th{color:var(--dim);font-weight:500;vertical-align:bottom;overflow-wrap:normal}
.n{text-align:right;white-space:nowrap;min-width:0}th.n{white-space:normal}
.narrow{display:none}
@media (max-width:40rem){.wide{display:none}.narrow{display:block}
.cells thead{display:none}.cells tr{display:flex;flex-wrap:wrap;gap:0 .9rem;padding:.45rem 0;
border-bottom:1px solid var(--line)}.cells td{border:0;padding:0;text-align:left}
.cells td:not(.n){order:-1;min-width:0}.cells td:last-child{width:100%%}
.cells .n:not(:empty)::before{content:attr(data-h) " ";color:var(--dim)}}
"""

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A page fetches nothing and runs no script but its own, whatever names it contains."""


def document(title: str, body: Iterable[str], style: str = "", script: str = "") -> str:
    """Make a page of pieces of HTML, with ``style`` after the common one.

    Of all scripts the browser runs only ``script``, which its hash allows.
    """
    policy = _POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        script = f"<script>{script}</script>"
    light, dark = (
        "".join(f"--c{i}:{color};" for i, color in enumerate(colors)) for colors in (LIGHT, _DARK)
    )
    common = _STYLE % (light, dark, "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(COLORS)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{common}{style}</style></head>"
        f"<body>{''.join(body)}{script}</body></html>\n"
    )


class Html(str):
    """A cell that is HTML already."""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()
) -> str:
    """Make a table of plain texts or `Html`, with ``numbers`` flush right.

    On a narrow screen each row is a block of lines.
    """
    numbers = set(numbers)

    def line(cells: Sequence[str], tag: str) -> str:
        made = []
        for head, cell in zip(heads, cells, strict=True):
            at = f' class="n" data-h="{escape(head)}"' if head in numbers else ""
            made.append(f"<{tag}{at}>{cell if isinstance(cell, Html) else escape(cell)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    lines = "".join(line(row, "td") for row in rows)
    kind = ' class="cells"' if numbers else ""
    return (
        f'<div class="scroll"><table{kind}><thead>{line(heads, "th")}</thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def number_text(value: float) -> str:
    """Format a return, such as ``500``, ``-1,070``, ``-89.3`` or ``0.873``."""
    if not math.isfinite(value):
        return f"{value}"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def spread_text(mean: float, deviation: float | None) -> str:
    """Format a mean, with two digits of the deviation if there is one, such as ``471 ± 22``."""
    if deviation is None or not math.isfinite(mean + deviation):
        return number_text(mean)
    if not deviation:
        return f"{number_text(mean)} ± 0"
    decimals = min(6, max(0, 1 - math.floor(math.log10(deviation))))
    return f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"


def return_text(evaluation: Evaluation) -> str:
    """Format the mean return and its standard deviation, such as ``471 ± 22``."""
    return spread_text(evaluation.mean, evaluation.std if evaluation.episodes > 1 else None)
