"""Makes the scorecard of docs/check.md from the results in benchmarks/results/check.

`hooktrainer check NAME --json > benchmarks/results/check/NAME.json` makes the results of a trainer;
`python docs/make_check.py`, the scorecard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results" / "check"
START, END = "<!-- scorecard -->", "<!-- end of scorecard -->"


def scorecard(results: Mapping[str, Any]) -> str:
    """The table of results, a column for each trainer; then everything that did not pass."""
    found = {
        name: {one["probe"]: one for one in result["findings"]} for name, result in results.items()
    }
    probes = next(iter(found.values()))
    lines = [_row(["probe", *(f"`{name}`" for name in results)]), "|---" * (1 + len(results)) + "|"]
    lines += [_row([f"`{p}`", *(one[p]["result"] for one in found.values())]) for p in probes]
    lines += ["", "With these versions, by `hooktrainer check NAME`:", ""]
    for name, result in results.items():
        versions = ", ".join(f"{name} {version}" for name, version in result["packages"].items())
        lines.append(f"- `{name}`: {versions}.")
    lines += ["", "What did not pass:", "", _row(["trainer", "probe", "seen", "reference"])]
    lines.append("|---" * 4 + "|")
    for name, result in results.items():
        for one in result["findings"]:
            if one["result"] != "pass":
                seen = one["seen"].replace("|", "\\|")
                lines.append(_row([f"`{name}`", f"`{one['probe']}`", seen, one["reference"]]))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def page(text: str, results: Mapping[str, Any]) -> str:
    """The page, with the scorecard between its marks."""
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{scorecard(results)}\n\n{END}{rest.partition(END)[2]}"


def read_results() -> dict[str, Any]:
    """The results by trainer, this package's first."""
    files = sorted(RESULTS.glob("*.json"), key=lambda file: (file.stem != "hooktrainer", file.stem))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def main() -> None:
    """Write it."""
    file = DOCS / "check.md"
    file.write_text(page(file.read_text(encoding="utf-8"), read_results()), encoding="utf-8")


if __name__ == "__main__":
    main()
