"""Writes into the pages what must never disagree with the code, each time they are built.

The marks in a page: ``<!-- hook-points: loop -->``, ``<!-- hook-points: table -->`` and
``<!-- hooks -->``, ``<!-- benchmarks -->``,
``<!-- benchmarks: short -->`` and ``<!-- benchmarks: pipeline -->``.
MkDocs calls `on_page_markdown` for every page.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hooktrainer
from hooktrainer.loop import hook_points

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
BENCHMARKS = (
    *("loop", "ppo", "ppo64", "worlds", "worlds1024", "dqn", "sac", "td3"),
    *("solve-ppo", "solve-dqn", "solve-sac", "mappo"),
    *("collecting", "collecting-atari", "envs", "widths", "replay"),
)
"""The benchmarks in the order of the page."""


def loop() -> str:
    """The loop, as `hooktrainer.loop.hook_points` draws it."""
    drawing = re.search(r"::\n\n((?:    .*\n|\n)+)", hook_points.__doc__ or "")
    if drawing is None:
        raise ValueError("the docstring of hooktrainer.loop.hook_points draws no loop")
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


def hooks() -> str:
    """Every hook: what it does in a line, and its reference."""
    names = sorted(hooktrainer.hooks.__all__, key=str.lower)
    rows = ["| hook | what it does |", "|---|---|"]
    for name in names:
        line = (inspect.getdoc(getattr(hooktrainer, name)) or "").partition("\n")[0]
        rows.append(f"| [`{name}`][hooktrainer.hooks.{name}] | {line} |")
    reference = [
        f"::: hooktrainer.hooks.{name}\n    options:\n      heading_level: 3" for name in names
    ]
    return "\n\n".join(["\n".join(rows), "## Reference", *reference])


def results() -> Iterator[dict[str, Any]]:
    """The measured benchmarks, in their order."""
    for name in BENCHMARKS:
        file = RESULTS / f"{name}.json"
        if file.exists():
            yield json.loads(file.read_text())


def value(number: float | None) -> str:
    """A figure with three significant digits."""
    if number is None:
        return "not reached"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def benchmark(result: dict[str, Any]) -> str:
    """One benchmark: its rows, and how many times each the first one of hooktrainer is."""
    rows = result["rows"]
    measures = list(next(iter(rows.values()))["median"])
    ours = next(name for name in rows if name.startswith("hooktrainer"))
    lines = [
        f"## {result['title'].partition(':')[0]}",
        f"{result['title'].partition(':')[2].strip()}. Measured {result['measured']}.".lstrip(". "),
        "",
        f"| | {' | '.join(measures)} | {ours} is |",
        f"|---{'|---:' * (len(measures) + 1)}|",
    ]
    more_is_better = "per CPU second" in measures[0]
    for name, row in rows.items():
        ratio = ""
        first, mine = row["median"][measures[0]], rows[ours]["median"][measures[0]]
        if name != ours and first and mine:
            ratio = f"{mine / first if more_is_better else first / mine:.2f} x"
        cells = [value(row["median"].get(measure)) for measure in measures]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def short() -> str:
    """The targets that are not met."""
    lines = []
    for result in results():
        title = result["title"].partition(":")[0]
        for target in result["targets"]:
            if target["met"] is False:
                times = " x" if target.get("against") else ""
                against = f", against {target['against']}" if target.get("against") else ""
                lines.append(
                    f"- {title}: {target['row']}{against}: {target['measured']:.2f}{times}, "
                    f"to reach {target['target']:g}{times}"
                )
    return "\n".join(lines) or "Nothing: every target is met."


def pipeline() -> str:
    """What stages and collecting ahead gain."""
    result = json.loads((RESULTS / "pipeline.json").read_text())
    lines = ["| | frames per second | to serial |", "|---|---:|---:|"]
    for name, row in result["summary"].items():
        lines.append(f"| {name} | {row['fps']:.0f} | {row['ratio']:.2f} x |")
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks of one page."""
    made = {
        "<!-- hook-points: loop -->": lambda: f"```python\n{loop()}\n```",
        "<!-- hook-points: table -->": table,
        "<!-- hooks -->": hooks,
        "<!-- benchmarks -->": lambda: "\n\n".join(map(benchmark, results())),
        "<!-- benchmarks: short -->": short,
        "<!-- benchmarks: pipeline -->": pipeline,
    }
    for mark, make in made.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown
