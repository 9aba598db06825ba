"""The results as one picture for the documentation: a panel a benchmark, a bar a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suite import BENCHMARKS

OURS, YARDSTICK, PEERS = "#1f6feb", "#9fb3c8", "#d0d7de"


def draw(folder: Path, picture: Path) -> None:
    """Draw every result in `folder` that the suite wants drawn."""
    saved = [
        json.loads(path.read_text(encoding="utf-8"))
        for name, benchmark in BENCHMARKS.items()
        if benchmark.drawn and (path := folder / f"{name}.json").is_file()
    ]
    if not saved:
        return
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("agg")
    mpl.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "benchmarks", "font.size": 9}
    heights = [len(bars(data)) + 3 for data in saved]
    figure, panels = plt.subplots(
        len(saved),
        figsize=(9, 0.27 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for panel, data in zip(panels[:, 0], saved, strict=True):
        draw_panel(panel, data)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, facecolor="white", metadata={"Date": None})
    plt.close(figure)


def bars(data: dict[str, Any]) -> dict[str, float]:
    """Return the rows of a saved result and their medians of the first measure."""
    label = BENCHMARKS[data["benchmark"]].measures[0].label
    medians = {row: values["median"][label] for row, values in data["rows"].items()}
    return {row: value for row, value in medians.items() if value is not None}


def draw_panel(panel: Any, data: dict[str, Any]) -> None:
    """Draw one benchmark as horizontal bars, the first row on top."""
    measure = BENCHMARKS[data["benchmark"]].measures[0]
    rows = bars(data)
    colours = [
        OURS if row.startswith("hooktrainer") else YARDSTICK if row.startswith("hand") else PEERS
        for row in rows
    ]
    drawn = panel.barh(list(rows), list(rows.values()), color=colours, height=0.72)
    panel.bar_label(
        drawn,
        [f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in rows.values()],
        padding=3,
    )
    panel.invert_yaxis()
    head, _, detail = data["title"].partition(": ")
    panel.set_title(head, loc="left", fontsize=10, fontweight="bold", pad=16)
    panel.text(0, 1.02, detail, transform=panel.transAxes, fontsize=8, color="#57606a", va="bottom")
    direction = "more" if measure.higher else "less"
    panel.set_xlabel(f"{measure.label}, {direction} is better", loc="left", fontsize=8)
    panel.margins(x=0.12)
    panel.spines[["top", "right", "left", "bottom"]].set_visible(False)
    panel.tick_params(length=0)
    panel.set_xticks([])
