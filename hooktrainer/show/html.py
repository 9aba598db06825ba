"""What the pages share: the look, light and dark, and tables. A page needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .chart import COLORS

LIGHT = ("#0b6bcb", "#d9480f", "#2b8a3e", "#9c36b5", "#c92a2a", "#0c8599", "#8f6400", "#495057")
"""Colours of lines on a light ground, in order."""

_DARK = ("#74b8ff", "#ffa270", "#69db7c", "#e599f7", "#ff8787", "#66d9e8", "#ffd43b", "#ced4da")

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--dim:#5d6673;--line:#d9dee5;--page:#fff;--card:#f7f8fa;
%s}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#9aa4b2;--line:#333a45;--page:#15181d;
--card:#1c2027;%s}}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--page);
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
.key{display:inline-block;margin:0 1.1rem .35rem 0;font-size:.9rem}
.key::before{content:"";display:inline-block;width:1.1em;height:.2em;margin-right:.45em;
vertical-align:middle;background:var(--c)}
%s
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:100%%}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;
white-space:nowrap}
th{color:var(--dim);font-weight:500}.n{text-align:right}
.narrow{display:none}
@media (max-width:40rem){th,td{padding-right:.6rem}.wide{display:none}.narrow{display:block}}
"""

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A page runs nothing and fetches nothing, whatever the names in it are."""


def document(title: str, body: Iterable[str], style: str = "") -> str:
    """Make a page.

    Args:
        title: Plain text.
        body: Pieces of HTML.
        style: CSS, after the common one.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}{style}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[str] = ()
) -> str:
    """Make a table of plain texts.

    Args:
        heads: Headings.
        rows: The cells of each row.
        numbers: The columns that are set flush right.
    """
    right = [' class="n"' if name in set(numbers) else "" for name in heads]

    def line(cells: Sequence[str], tag: str) -> str:
        made = (f"<{tag}{at}>{escape(c)}</{tag}>" for c, at in zip(cells, right, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    lines = [line(heads, "th"), *(line(row, "td") for row in rows)]
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def _style() -> str:
    light, dark = (
        "".join(f"--c{i}:{color};" for i, color in enumerate(colors)) for colors in (LIGHT, _DARK)
    )
    return _STYLE % (light, dark, "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(COLORS)))
