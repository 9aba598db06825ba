"""Makes the table and the picture of docs/results.md from the results that hooktrainer ships.

    python docs/make_results.py

`hooktrainer regress ROW --against hooktrainer/show/results --record 0-9` trains the seeds of a row
and keeps them, with HEAD as their commit: commit changes of the package before.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from hooktrainer.show.report.analysis import interval_text
from hooktrainer.show.results.result_rows import ResultRow, read_rows
from hooktrainer.statistics import interval

DOCS = Path(__file__).parent
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
    return f"`{' '.join(row.recipe.train)}`"


def seeds_of(row: ResultRow) -> str:
    """The seeds of a row, which are consecutive."""
    seeds = list(row.digests)
    return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"


def table(rows: Mapping[str, ResultRow]) -> str:
    """The table, a line for each row."""
    lines = [
        "| row | `hooktrainer train` | seeds | frames | IQM of the return [95 %] "
        "| worst and best | CPU s | published | commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        scores, decimals = row.scores, digits(row.scores)
        shortest, longest = frames(min(row.frames)), frames(max(row.frames))
        cells = [
            f"`{row.name}`",
            title(row),
            seeds_of(row),
            frames(statistics.median(row.frames))
            + (f" ({shortest} to {longest})" if shortest != longest else ""),
            interval_text(interval(scores)).replace(" [-]", "; none"),
            ", ".join(number(value, decimals) for value in (min(scores), max(scores))),
            f"{row.cpu_seconds / len(scores):.0f}",
            row.recipe.published,
            row.commit,
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def made_with(rows: Mapping[str, ResultRow]) -> str:
    """What bits depend on, once for all rows that have it in common."""
    groups: dict[str, list[str]] = {}
    for row in rows.values():
        parts = [
            value if name in ("processor", "system") else f"{name} {value}"
            for name, value in row.surroundings.items()
        ]
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


def page(text: str, rows: Mapping[str, ResultRow]) -> str:
    """The page, with what its marks stand for filled in."""
    for name, filled in (
        ("table", table(rows)),
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
    file.write_text(page(file.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
