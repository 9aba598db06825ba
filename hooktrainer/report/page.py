"""The comparison page: curves with mean and spread over seeds, and what led to them.

One HTML file that needs nothing but itself: the charts are drawn in it, and it opens offline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from statistics import mean, stdev

from ..run_dir import RunDir
from .chart import COLORS, chart
from .curves import Curve, Group, band, configuration, differing, read_curves

_LIGHT = ("#0b6bcb", "#d9480f", "#2b8a3e", "#9c36b5", "#c92a2a", "#0c8599", "#8f6400", "#495057")
_DARK = ("#74b8ff", "#ffa270", "#69db7c", "#e599f7", "#ff8787", "#66d9e8", "#ffd43b", "#ced4da")

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--dim:#5d6673;--line:#d9dee5;--page:#fff;--card:#f7f8fa;
%s}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#9aa4b2;--line:#333a45;--page:#15181d;
--card:#1c2027;%s}}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--page);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem;font-weight:600}
p{color:var(--dim);margin:.25rem 0}
figure{margin:0;padding:.75rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem}
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
"""


def comparison_page(groups: Sequence[Group], metrics: Sequence[str]) -> str:
    """Write the page.

    Args:
        groups: What is compared, at least one.
        metrics: The metrics to draw; the first one is in the tables too.

    Returns:
        HTML.
    """
    runs = [run for group in groups for run in group.runs]
    curves = {run.path: read_curves(RunDir(run.path), metrics) for run in runs}
    figures = [_figure(groups, metric, curves) for metric in metrics]
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    body = [
        f"<h1>{escape(_title(groups))}</h1>",
        f"<p>{count} in {len(groups)} group{'s' * (len(groups) != 1)}. Lines are means over the "
        "runs of a group, as far as all of them went; shaded is one standard deviation; thin lines "
        "are single runs.</p>",
        *filter(None, figures),
        "<h2>Groups</h2>",
        _table(
            ["group", "runs", f"last {metrics[0]}", f"best {metrics[0]}", "frames", "seconds"],
            [_group_row(group) for group in groups],
        ),
        "<h2>Runs</h2>",
        _runs_table(groups, metrics[0]),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(_title(groups))}</title><style>{_style()}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation, such as ``471 ± 22``; empty if there are none."""
    if not values:
        return ""
    deviation = stdev(values) if len(values) > 1 else 0.0
    if not deviation:
        text = f"{mean(values):,.6g}" if abs(mean(values)) < 1e6 else f"{mean(values):,.0f}"
        return f"{text} ± 0" if len(values) > 1 else text
    decimals = max(0, 1 - math.floor(math.log10(deviation)))  # two digits of the deviation
    return f"{mean(values):,.{decimals}f} ± {deviation:,.{decimals}f}"


def _title(groups: Sequence[Group]) -> str:
    names = dict.fromkeys(run.experiment for group in groups for run in group.runs)
    return ", ".join(filter(None, names)) or "runs"


def _style() -> str:
    light, dark = (
        "".join(f"--c{i}:{color};" for i, color in enumerate(colors)) for colors in (_LIGHT, _DARK)
    )
    return _STYLE % (light, dark, "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(COLORS)))


def _figure(groups: Sequence[Group], metric: str, curves: dict) -> str:  # type: ignore[type-arg]
    drawn: list[tuple[str, list[tuple[str, Curve]]]] = []
    for group in groups:
        members = [(str(r.path), curves[r.path].get(metric, Curve.of([]))) for r in group.runs]
        drawn.append((group.label, [(name, c) for name, c in members if len(c.values)]))
    having = [members for _, members in drawn if members]
    if not having:
        return f"<h2>{escape(metric)}</h2><p>No run has logged it.</p>"
    # A group without the metric keeps its colour: it is drawn as nothing.
    keys, kept, bands = [], [], []
    for number, (label, members) in enumerate(drawn):
        kept.append((label, members))
        bands.append(band([curve for _, curve in members]) if members else _NOTHING)
        if members:
            seeds = f" ({len(members)} runs)" if len(members) > 1 else ""
            keys.append(f'<span class="key c{number % COLORS}">{escape(label)}{seeds}</span>')
    return (
        f"<h2>{escape(metric)}</h2><figure>{''.join(keys)}{chart(kept, bands)}"
        "<p>environment frames →</p></figure>"
    )


_NOTHING = band([Curve.of([(0, 0.0)])])


def _group_row(group: Group) -> list[str]:
    best = [run.best for run in group.runs if run.best is not None]
    return [
        group.label,
        f"{len(group.runs)}",
        spread(group.finals()),
        spread(best),
        spread([float(run.frames) for run in group.runs]),
        spread([run.seconds for run in group.runs]),
    ]


def _runs_table(groups: Sequence[Group], metric: str) -> str:
    runs = [run for group in groups for run in group.runs]
    options = differing([configuration(run) for run in runs])
    heads = ["run", "seed", "status", "frames", "seconds", f"last {metric}", "best", *options]
    rows = []
    for run in runs:
        config = configuration(run)
        rows.append(
            [
                str(run.path),
                "" if run.seed is None else str(run.seed),
                run.status,
                f"{run.frames:,}",
                f"{run.seconds:,.1f}",
                "" if run.last is None else f"{run.last:.6g}",
                "" if run.best is None else f"{run.best:.6g}",
                *(str(config.get(name, "")) for name in options),
            ]
        )
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
