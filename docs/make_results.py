r"""Makes the table and the picture of docs/results.md from finished runs.

    for seed in 0 1 2; do
      hooktrainer train sac --env Pendulum-v1 --seed $seed \
        --run-dir results/sac@Pendulum-v1/seed$seed
    done
    python docs/make_results.py results

Runs lie in ``<algorithm>@<environment>/seed<n>`` or ``<recipe>/seed<n>``; with another option, in
``<algorithm>+<option>@<environment>/seed<n>``.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
METRIC = "eval/return"

# What others report: final mean return ± standard deviation (frames).
ZOO, CLEANRL = "SB3", "CleanRL"
PUBLISHED = {
    "ppo@CartPole-v1": f"{ZOO} 500 ± 0 (100k); {CLEANRL} 490 ± 6 (500k)",
    "a2c@CartPole-v1": f"{ZOO} 500 (500k)",
    "dqn@CartPole-v1": f"{ZOO} 500 (50k); {CLEANRL} 489 ± 16 (500k)",
    "ppo@LunarLander-v3": f"{ZOO} 242 ± 32 (1M, v2)",
    "ppo@HalfCheetah-v5": f"{ZOO} 5819 ± 664 (1M, v3)",
    "ppo@Pendulum-v1": f"{ZOO} -172 (100k)",
    "ppo@MountainCarContinuous-v0": f"{ZOO} 88 (20k)",
    "sac@MountainCarContinuous-v0": f"{ZOO} 95 (50k)",
    "sac@Pendulum-v1": f"{ZOO} -157 ± 89 (20k)",
    "td3@Pendulum-v1": f"{ZOO} -152 ± 90 (20k)",
    "ddpg@Pendulum-v1": f"{ZOO} -152 ± 94 (20k)",
    "sac@HalfCheetah-v5": f"{ZOO} 9535 ± 100 (1M); {CLEANRL} 9635 ± 1424 (1M)",
}


@dataclass
class Run:
    """One finished run.

    Attributes:
        seed: Its seed.
        curve: Frames and mean evaluation return.
        seconds: Wall seconds of training.
        metrics: The last value of every metric.
    """

    seed: int
    curve: list[tuple[int, float]]
    seconds: float
    metrics: dict[str, float]


def load(path: Path) -> Run:
    """Read a run's directory."""
    with (path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["name"] == METRIC]
    curve = {int(row["step"]): float(row["value"]) for row in rows}
    state = json.loads((path / "run.json").read_text())
    seed = int(path.name.removeprefix("seed"))
    return Run(seed, sorted(curve.items()), state["seconds"], state["metrics"])


def frames(count: float) -> str:
    """A count of frames for people: 20k, 1.5M."""
    return f"{count / 1e6:.3g}M" if count >= 999_500 else f"{count / 1e3:.3g}k"


def number(value: float) -> str:
    """A return for people."""
    return f"{value:.0f}"


def row(name: str, runs: list[Run]) -> str:
    """One line of the table."""
    final = [run.curve[-1][1] for run in runs]
    asked, _, env = name.partition("@")
    what, _, option = asked.partition("+")
    spread = f" ± {statistics.stdev(final):.0f}" if len(final) > 1 else ""
    length = statistics.median(run.curve[-1][0] for run in runs)
    seconds = statistics.median(run.seconds for run in runs)
    said = f"`{what}{f' --{option}' if option else ''}`" + (f" on `{env}`" if env else "")
    cells = [
        said,
        ", ".join(str(run.seed) for run in runs),
        frames(length),
        number(statistics.mean(final)) + spread,
        " ".join(number(value) for value in final),
        f"{seconds:.0f} s",
        PUBLISHED.get(f"{what}@{env}", ""),
    ]
    return f"| {' | '.join(cells)} |"


def table(groups: dict[str, list[Run]]) -> str:
    """The table, a line for each."""
    head = [
        "| algorithm | seeds | frames | final return | each seed | time | published |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row(name, runs) for name, runs in groups.items())])


def panel(name: str, runs: list[Run], left: int, top: int) -> str:
    """One small chart."""
    width, height = 220, 120
    xs = [x for run in runs for x, _ in run.curve]
    ys = [y for run in runs for _, y in run.curve]
    x_high, y_low, y_high = max(xs), min(ys), max(ys)
    scale = (y_high - y_low) or 1.0
    lines = [
        f'<g transform="translate({left},{top})">',
        f'<text class="title" x="0" y="-8">{name.replace("+", " --").replace("@", " · ")}</text>',
        f'<rect width="{width}" height="{height}"/>',
        f'<text x="4" y="13">{number(y_high)}</text>',
        f'<text x="4" y="{height - 5}">{number(y_low)}</text>',
        f'<text x="{width}" y="{height + 15}" text-anchor="end">{frames(x_high)} frames</text>',
    ]
    for run in runs:
        points = " ".join(
            f"{x / x_high * width:.1f},{height - (y - y_low) / scale * height:.1f}"
            for x, y in [(0, run.curve[0][1]), *run.curve]
        )
        lines.append(f'<polyline points="{points}"/>')
    return "\n".join([*lines, "</g>"])


def picture(groups: dict[str, list[Run]]) -> str:
    """All charts, three in a line, readable on light and dark ground."""
    panels = [
        panel(name, runs, 20 + k % 3 * 250, 40 + k // 3 * 185)
        for k, (name, runs) in enumerate(groups.items())
    ]
    height = 40 + (len(groups) + 2) // 3 * 185
    style = (
        "text{font:11px sans-serif;fill:#777}.title{font-size:11.5px;fill:#5c6bc0;font-weight:bold}"
        "rect{fill:none;stroke:#9996}polyline{fill:none;stroke:#5c6bc0;stroke-width:1.5;opacity:.7}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}">'
    return "\n".join([head, f"<style>{style}</style>", *panels, "</svg>", ""])


def main(root: Path) -> None:
    """Write both."""
    groups = {}
    for place in sorted(root.iterdir()):
        runs = [load(run) for run in sorted(place.glob("seed*")) if (run / "metrics.csv").exists()]
        runs = [run for run in runs if run.curve]
        if runs:
            groups[place.name] = runs
    (DOCS / "assets" / "results.svg").write_text(picture(groups))
    page = DOCS / "results.md"
    marks = "<!-- table -->", "<!-- end of table -->"
    pattern = f"{marks[0]}.*{marks[1]}"
    filled = f"{marks[0]}\n\n{table(groups)}\n\n{marks[1]}"
    page.write_text(re.sub(pattern, lambda _: filled, page.read_text(), flags=re.DOTALL))
    for name, runs in groups.items():
        if data := runs[0].metrics.get("data/return"):
            print(f"{name}: the data set's mean return is {data:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
