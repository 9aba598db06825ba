"""Draws what GRPO learns of sums as docs/assets/sequences.svg, the picture on docs/sequences.md.

It is of these runs:

    hooktrainer train sft --task addition --run-dir runs/sft
    hooktrainer train grpo --task addition --init runs/sft --seeds 3 --eval-episodes 500
        --eval-interval 5000 --run-dir runs/grpo
    python docs/draw_learning.py runs/sft runs/grpo
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from hooktrainer.log import read_csv

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 740, 300, 56, 44, 14, 36
METRIC = "eval/return"


@dataclass
class Args:
    """Options."""

    start: tyro.conf.Positional[Path]
    """the run of SFT, whose last evaluation is the first point"""
    seeds: tyro.conf.Positional[Path]
    """the directory with a run of GRPO for each seed"""
    out: Path = Path(__file__).parent / "assets/sequences.svg"
    """the picture"""


def main(args: Args) -> None:
    """Draw the picture."""
    first = (0, read_csv(args.start)[METRIC][-1][1])
    runs = sorted(args.seeds.glob("seed*"))
    curves = [[first, *read_csv(run)[METRIC]] for run in runs]
    total = max(frames for curve in curves for frames, _ in curve)
    parts = []
    for percent in range(0, 101, 25):
        y = _y(percent / 100)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#8884"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{percent} %", "end"))
    for frames in range(0, total + 1, 20_000):
        x = _x(frames / total)
        parts.append(_text(x, HEIGHT - BOTTOM + 20, f"{frames:,}".replace(",", "\u202f"), "middle"))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 6, "completions trained on", "middle"))
    for curve in curves:
        parts.append(_line(curve, total, 'stroke="#7fb6e6" stroke-width="1.2"'))
    means = [
        (places[0][0], sum(value for _, value in places) / len(places))
        for places in zip(*curves, strict=True)
    ]
    parts.append(_line(means, total, 'stroke="#2f6fb0" stroke-width="2.5"'))
    args.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" '
        f'font-family="sans-serif" font-size="13">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(value: float) -> float:
    return HEIGHT - BOTTOM - value * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#777">{text}</text>'


def _line(curve: list[tuple[int, float]], total: int, style: str) -> str:
    points = " ".join(f"{_x(frames / total):.1f},{_y(value):.1f}" for frames, value in curve)
    return f'<polyline points="{points}" {style}/>'


if __name__ == "__main__":
    main(tyro.cli(Args))
