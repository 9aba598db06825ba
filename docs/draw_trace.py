"""Draws a part of a trace as docs/assets/trace.svg, the picture on the page about time.

It is of ``python recipes/ppo_cartpole.py --trace 8 --overlap 1 --num-epochs 1``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import tyro

WIDTH, LEFT, BAR, GAP = 900, 110, 20, 26
COLORS = {
    "step": "#b8c0cc",
    "collect": "#7fb6e6",
    "optimize": "#f0b070",
    "advantages": "#c9a3dd",
    "evaluate": "#e79aa6",
    "checkpoint": "#8fc9a0",
    "log": "#d8cf7a",
    "env": "#5fb0a6",
    "inference": "#a9cdf0",
    "transfer": "#4f8fc9",
    "loss": "#f7d0a0",
}
OTHER = "#c5c9d0"


@dataclass
class Args:
    """Options."""

    trace: tyro.conf.Positional[Path]
    """the trace"""
    first: int = 4
    """the first step to draw"""
    steps: int = 2
    """how many steps to draw"""
    out: Path = Path(__file__).parent / "assets/trace.svg"
    """the picture"""


def main(args: Args) -> None:
    """Draw the picture."""
    events = json.loads(args.trace.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    steps = [s for s in spans if s["name"] == "step"][args.first - 1 :][: args.steps]
    begin, end = steps[0]["ts"], steps[-1]["ts"] + steps[-1]["dur"]
    scale = (WIDTH - LEFT - 10) / (end - begin)
    parts: list[str] = []
    y = 8
    for tid, name in names.items():
        shown = [s for s in spans if s["tid"] == tid and s["ts"] < end and _end(s) > begin]
        depth = 0
        open_spans: list[dict[str, Any]] = []
        label = "the learner" if tid == 1 else name.removeprefix("the ")
        parts.append(f'<text x="0" y="{y + 14}" class="row">{escape(label)}</text>')
        for span in shown:
            while open_spans and _end(open_spans[-1]) <= span["ts"] + 1e-3:
                open_spans.pop()
            level = len(open_spans)
            open_spans.append(span)
            depth = max(depth, level)
            left = LEFT + max(0.0, span["ts"] - begin) * scale
            right = LEFT + min(end - begin, _end(span) - begin) * scale
            parts.append(_bar(span, left, right - left, y + level * (BAR + 2)))
        y += (depth + 1) * (BAR + 2) + GAP
    milliseconds = (end - begin) / 1000
    parts.append(f'<text x="{LEFT}" y="{y}" class="row">{milliseconds:.1f} milliseconds</text>')
    style = (
        "text { font: 12px system-ui, sans-serif; fill: #20242c } .row { fill: #7a8290 } "
        "rect { stroke: #ffffff; stroke-width: 0.6 }"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10}">'
    title = "<title>Steps of a run, span by span</title>"
    body = "\n".join([head, title, f"<style>{style}</style>", *parts, "</svg>"])
    args.out.write_text(body + "\n")


def _end(span: dict[str, Any]) -> float:
    return float(span["ts"] + span["dur"])


def _bar(span: dict[str, Any], x: float, width: float, y: float) -> str:
    color = COLORS.get(span["name"], COLORS.get(span["cat"], OTHER))
    tip = f"<title>{escape(span['name'])}: {span['dur']:.0f} µs</title>"
    bar = f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.8):.1f}" height="{BAR}" fill="{color}"'
    text = ""
    if width > 7 * len(span["name"]) + 6:
        text = f'<text x="{x + 4:.1f}" y="{y + 14}">{escape(span["name"])}</text>'
    return f"{bar}>{tip}</rect>{text}"


if __name__ == "__main__":
    main(tyro.cli(Args))
