"""Makes the tables and the picture of docs/results.md from the results that hooktrainer ships.

    python docs/make_results.py

`hooktrainer regress ROW --against hooktrainer/show/results --record 0-9` trains the seeds of a row
and keeps them, with HEAD as their commit: commit changes of the package before.
`benchmarks/peers.py ROW` trains it with Stable-Baselines3.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hooktrainer.show.report.analysis import interval_text
from hooktrainer.show.results.result_rows import ResultRow, read_rows
from hooktrainer.statistics import interval

DOCS = Path(__file__).parent
PEERS = DOCS.parent / "benchmarks" / "results" / "peers"
MARKS = "<!-- {} -->", "<!-- end of {} -->"


def frames(count: float) -> str:
    """A count of frames for people: 20k, 1.5M."""
    return f"{count / 1e6:.3g}M" if count >= 999_500 else f"{count / 1e3:.3g}k"


def number(value: float, decimals: int) -> str:
    """A return for people; what is nothing has no sign."""
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def digits(scores: Iterable[float]) -> int:
    """Decimals of scores: of small ones more than of large ones."""
    return 0 if max(map(abs, scores)) >= 20 else 2


def title(row: ResultRow) -> str:
    """What `hooktrainer train` is given, without the seeds and the directory."""
    return f"`{shlex.join(row.recipe.train)}`"


def seeds_of(seeds: Sequence[int]) -> str:
    """The seeds of a row, which are consecutive."""
    return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"


def table(rows: Mapping[str, ResultRow]) -> str:
    """The table, a line for each row."""
    lines = [
        "| row | `hooktrainer train` | seeds | frames | IQM of the return [95 %] "
        "| worst and best | CPU s | published | commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        seconds = row.cpu_seconds / len(row.scores)
        cells = [
            f"`{row.name}`",
            title(row),
            *measured([*row.digests], row.frames, row.scores, seconds),
            row.recipe.published,
            row.commit,
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def measured(
    seeds: Sequence[int], ends: Sequence[float], scores: Sequence[float], seconds: float
) -> list[str]:
    """The cells of seeds, frames, IQM, worst and best, and CPU seconds a seed."""
    decimals = digits(scores)
    return [
        seeds_of(seeds),
        spread(ends),
        interval_text(interval(scores)).replace(" [-]", "; none"),
        ", ".join(number(value, decimals) for value in (min(scores), max(scores))),
        f"{seconds:.0f}",
    ]


def spread(counts: Sequence[float]) -> str:
    """The median of frames, with the least and the most where they differ."""
    shortest, longest = frames(min(counts)), frames(max(counts))
    median = frames(statistics.median(counts))
    return f"{median} ({shortest} to {longest})" if shortest != longest else median


def read_peers(directory: Path = PEERS) -> dict[str, dict[str, Any]]:
    """What benchmarks/peers.py wrote for each row."""
    return {file.stem: json.loads(file.read_text("utf-8")) for file in directory.glob("*.json")}


def peers_table(rows: Mapping[str, ResultRow], peers: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows that a peer trained too: ours, the peer's where ours stops, and at its own end."""
    lines = [
        "| row | trained by | seeds | frames | IQM of the return [95 %] | worst and best | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (one for one in rows.values() if one.name in peers):
        peer = peers[row.name]
        name, seeds = f"SB3 {peer['settings']['algorithm']}", [*map(int, peer["seeds"])]
        whole = [one["curve"] for one in peer["seeds"].values()]
        stopped = [until(curve, peer["task"]["stop_at"], max(row.frames)) for curve in whole]
        seconds = statistics.mean(one["hooktrainer_cpu_seconds"] for one in peer["seeds"].values())
        own = measured([*row.digests], row.frames, row.scores, seconds)
        lines.append(line([f"`{row.name}`", "hooktrainer", *own]))
        if stopped != whole:
            lines.append(line(["", f"{name}, stopped as here", *measured_peer(seeds, stopped)]))
        lines.append(line(["", name, *measured_peer(seeds, whole)]))
    made = {", ".join(with_names(peer["surroundings"])) for peer in peers.values()}
    return "\n".join([*lines, "", f"Run with {'; or '.join(sorted(made))}."])


Curve = Sequence[tuple[int, float, float]]
"""Frames, return and CPU seconds so far of each evaluation."""


def until(curve: Curve, stop_at: float | None, most: int) -> Curve:
    """A curve to where our run would stop: at a return, or after frames."""
    for k, (at, score, _) in enumerate(curve):
        if at >= most if stop_at is None else score >= stop_at:
            return curve[: k + 1]
    return curve


def measured_peer(seeds: Sequence[int], curves: Sequence[Curve]) -> list[str]:
    """The cells of curves, at their ends."""
    ends, scores, seconds = zip(*(curve[-1] for curve in curves), strict=True)
    return measured(seeds, ends, scores, statistics.mean(seconds))


def with_names(surroundings: Mapping[str, str]) -> list[str]:
    """Processor and system, and packages with their names."""
    return [
        value if name in ("processor", "system") else f"{name} {value}"
        for name, value in surroundings.items()
    ]


def made_with(rows: Mapping[str, ResultRow]) -> str:
    """What bits depend on, once for all rows that have it in common."""
    groups: dict[str, list[str]] = {}
    for row in rows.values():
        parts = with_names(row.surroundings)
        own = len(row.recipe.packages)
        shared = ", ".join(parts[: len(parts) - own])
        extra = f" ({', '.join(parts[len(parts) - own :])})" if own else ""
        groups.setdefault(shared, []).append(f"`{row.name}`{extra}")
    most = max(groups, key=lambda what: len(groups[what]))
    special = [name for name in groups[most] if "(" in name]
    extra = f" Also: {', '.join(special)}." if special else ""
    if len(groups) == 1:
        return f"All were made with {most}.{extra}"
    shared = set(most.split(", "))
    others = [
        f"- {', '.join(names)}: {', '.join(s for s in what.split(', ') if s not in shared)}."
        for what, names in groups.items()
        if what != most
    ]
    return "\n".join([f"Processor and versions of most rows: {most}.{extra} But:", "", *others])


def panel(row: ResultRow, left: int, top: int) -> str:
    """One small chart: a line a seed, from its first evaluation to a dot where it ended."""
    width, height = 220, 120
    curves = [digest.curve for digest in row.digests.values()]
    xs = [x for curve in curves for x, _ in curve]
    ys = [y for curve in curves for _, y in curve]
    x_high, y_low, y_high = max(xs), min(ys), max(ys)
    scale, decimals = (y_high - y_low) or 1.0, digits(ys)
    lines = [
        f'<g transform="translate({left},{top})">',
        f'<text class="title" x="0" y="-8">{row.name}</text>',
        f'<rect width="{width}" height="{height}"/>',
        f'<text x="0" y="{height + 15}">{number(y_low, decimals)} to '
        f"{number(y_high, decimals)}</text>",
        f'<text x="{width}" y="{height + 15}" text-anchor="end">{frames(x_high)} frames</text>',
    ]
    for curve in curves:
        places = [
            (f"{x / x_high * width:.1f}", f"{height - (y - y_low) / scale * height:.1f}")
            for x, y in curve
        ]
        lines.append(f'<polyline points="{" ".join(map(",".join, places))}"/>')
        lines.append('<circle cx="{}" cy="{}" r="2"/>'.format(*places[-1]))
    return "\n".join([*lines, "</g>"])


def picture(rows: Mapping[str, ResultRow]) -> str:
    """All charts, three in a line, readable on light and dark ground."""
    panels = [
        panel(row, 20 + k % 3 * 250, 40 + k // 3 * 185) for k, row in enumerate(rows.values())
    ]
    height = 40 + (len(rows) + 2) // 3 * 185
    style = (
        "text{font:11px sans-serif;fill:#777}.title{font-size:11.5px;fill:#5c6bc0;font-weight:bold}"
        "rect{fill:none;stroke:#9996}polyline{fill:none;stroke:#5c6bc0;stroke-width:1.5;opacity:.5}"
        "circle{fill:#5c6bc0;opacity:.5}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}">'
    return "\n".join([head, f"<style>{style}</style>", *panels, "</svg>", ""])


def page(text: str, rows: Mapping[str, ResultRow], peers: Mapping[str, Any]) -> str:
    """The page, with what its marks stand for filled in."""
    for name, filled in (
        ("table", table(rows)),
        ("peers", peers_table(rows, peers)),
        ("made with", made_with(rows)),
    ):
        start, end = (mark.format(name) for mark in MARKS)
        if start not in text or end not in text:
            raise ValueError(f"docs/results.md lacks {start} or {end}")
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{filled}\n\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    """Write both."""
    rows = read_rows()
    (DOCS / "assets" / "results.svg").write_text(picture(rows), encoding="utf-8")
    file = DOCS / "results.md"
    file.write_text(page(file.read_text(encoding="utf-8"), rows, read_peers()), encoding="utf-8")


if __name__ == "__main__":
    main()
