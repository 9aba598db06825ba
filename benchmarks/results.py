"""From the scripts' lines of JSON to medians, ratios and verdicts; saved as JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from suite import Benchmark, Limit, Measure, Ratio

PACKAGES = (
    *("hooktrainer", "torch", "torchrl", "tensordict", "stable-baselines3", "gymnasium"),
    *("envpool", "vmas"),
)


@dataclass
class Verdict:
    """Whether a target is met; `value` is `None` where one of its rows is missing."""

    target: Ratio | Limit
    value: float | None

    @property
    def met(self) -> bool | None:
        """True, false, or `None` if it could not be measured."""
        if self.value is None:
            return None
        # A target is met if it is met to the precision that is printed.
        value = round(self.value, 2)
        return (
            value >= self.target.bound
            if isinstance(self.target, Ratio)
            else value <= self.target.bound
        )


@dataclass
class Results:
    """What one benchmark gave.

    Attributes:
        benchmark: the benchmark.
        rows: for each row the values of each measure, one a round; `inf` where a goal was not
            reached.
        options: the options of each row, as its script reported them.
        missing: the rows that gave nothing, and why.
    """

    benchmark: Benchmark
    rows: dict[str, list[list[float]]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, case: str, output: dict[str, Any]) -> None:
        """Add what a script printed; a script may print several rows under `rows`."""
        for name, values in output.get("rows", {case: output}).items():
            measured = [look_up(values, measure) for measure in self.benchmark.measures]
            self.rows.setdefault(name, []).append(measured)
        self.options.setdefault(case, output.get("options", {}))

    def values(self, row: str, measure: int = 0) -> list[float]:
        """Return one value a round."""
        return [values[measure] for values in self.rows.get(row, [])]

    def median(self, row: str, measure: int = 0) -> float | None:
        """Return the median over rounds, or `None` if there is nothing."""
        values = [value for value in self.values(row, measure) if not math.isnan(value)]
        return statistics.median(values) if values else None

    def ratio(self, ours: str, against: str) -> float | None:
        """Return how many times better `ours` is, as the ratio of the medians."""
        a, b = self.median(ours), self.median(against)
        if a is None or b is None:
            return None
        if not self.benchmark.measures[0].higher:
            a, b = b, a
        return math.nan if a == b == math.inf else a / b

    def verdicts(self) -> list[Verdict]:
        """Return every target with what was measured."""
        return [
            Verdict(target, self.ratio(target.ours, target.against))
            if isinstance(target, Ratio)
            else Verdict(target, self.median(target.ours, target.measure))
            for target in self.benchmark.targets
        ]

    def save(self, folder: Path) -> Path:
        """Write `<folder>/<benchmark>.json` and return its path."""
        labels = [measure.label for measure in self.benchmark.measures]
        data = {
            "benchmark": self.benchmark.name,
            "title": self.benchmark.title,
            "measured": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(),
            "versions": versions(),
            "rows": {
                row: {
                    "median": {
                        label: finite(self.median(row, i)) for i, label in enumerate(labels)
                    },
                    "rounds": {
                        label: [finite(x) for x in self.values(row, i)]
                        for i, label in enumerate(labels)
                    },
                    "options": self.options.get(row, {}),
                }
                for row in self.rows
            },
            "targets": [
                {
                    "row": verdict.target.ours,
                    "against": getattr(verdict.target, "against", None),
                    "target": verdict.target.bound,
                    "measured": finite(verdict.value),
                    "met": verdict.met,
                }
                for verdict in self.verdicts()
            ],
            "missing": self.missing,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark.name}.json"
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def look_up(output: dict[str, Any], measure: Measure) -> float:
    """Return a measure's value: `inf` for a goal that was not reached, `nan` if there is none."""
    value: Any = output
    for key in measure.path:
        if not isinstance(value, dict) or key not in value:
            return math.inf if measure.path[0] == "reached" else math.nan
        value = value[key]
    return float(value)


def finite(value: float | None) -> float | None:
    """Return a value that JSON can hold."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the libraries."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that are compared."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
