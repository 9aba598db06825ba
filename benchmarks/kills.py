"""Kill runs of GRPO with SIGKILL at random instants: is a prompt skipped, trained on twice?

For each configuration one run goes to its end; others are killed and resumed until they are at
theirs, by `hooktrainer verify-resume`. Counted are the groups of completions that were trained on
in the one and not, or more often, in the other, and what differs in the last checkpoint and in
metrics.csv, bit for bit.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from time import monotonic

import tyro

from hooktrainer.cli.verify_resume import verify_resume
from hooktrainer.store import Checkpoint, find

SCRIPT = Path(__file__).parents[1] / "tests/sequences/killed_run.py"
CONFIGURATIONS = {
    "synchronous": "plain",
    "overlap 1": "plain --overlap 1",
    "overlap 2": "plain --overlap 2",
    "overlap 4": "plain --overlap 4",
    "carry over": "plain --carry-over 6",
    "carry over, overlap 2": "plain --carry-over 6 --overlap 2",
    "several turns": "turns",
    "several turns, carry over, overlap 1": "turns --carry-over 6 --overlap 1",
    "rewards in processes": "processes",
    "rewards in processes, overlap 2": "processes --overlap 2",
}


@dataclass(frozen=True)
class Found:
    """What kills did to a run."""

    kills: int
    groups: int
    """groups of completions that the uninterrupted run was trained on"""
    skipped: int
    """of these, the groups that the killed run was not trained on"""
    doubled: int
    """groups that it was trained on more than once, or in parts"""
    different: int
    """values that differ, of `leaves`"""
    leaves: int


def audit(name: str, kills: int, seed: int, samples: int, place: Path) -> Found:
    """Train a configuration twice, in directories under ``place``, one of the runs with kills."""
    words = (*CONFIGURATIONS[name].split(), "--total-samples", str(samples))
    printed = StringIO()
    with redirect_stdout(printed):
        verify_resume(str(SCRIPT), words, kills=kills, seed=seed, keep=place, json=True)
    if not printed.getvalue():
        raise SystemExit(f"{name}: a run failed; what it printed is in {place}")
    parts = json.loads(printed.getvalue())["parts"]
    straight, killed = trained(place / "straight"), trained(place / "killed")
    (size,) = set(straight.values())  # of a group
    return Found(
        kills=kills,
        groups=len(straight),
        skipped=len(straight.keys() - killed.keys()),
        doubled=sum(count != size for count in killed.values()),
        different=sum(len(part["differences"]) for part in parts),
        leaves=sum(part["leaves"] for part in parts),
    )


def trained(run: Path) -> Counter[int]:
    """The groups that a run was trained on, and how often."""
    components = Checkpoint.open(find("latest", run)[0]).load()["components"]
    return Counter(components["hook/trained"]["groups"].tolist())


@dataclass(kw_only=True)
class Args:
    """Options of the audit."""

    kills: int = 5
    """kills of each run"""
    rounds: int = 1
    """runs of each configuration"""
    minutes: float | None = None
    """stop after this time, and count what was done until then"""
    samples: int = 3_200
    """completions that each run is trained on"""
    seed: int = 0
    """seed of the instants"""


def main(args: Args) -> None:
    """Print a table."""
    print("| runs | kills | groups | skipped | doubled | different values |")
    print("|---|---|---|---|---|---|")
    seeds = random.Random(args.seed)
    end = monotonic() + 60 * (args.minutes or 1e9)
    found: dict[str, list[Found]] = {name: [] for name in CONFIGURATIONS}
    for _ in range(args.rounds):
        for name, done in found.items():
            place = Path(tempfile.mkdtemp(prefix="kills-"))
            if monotonic() < end:
                done.append(audit(name, args.kills, seeds.randrange(2**32), args.samples, place))
            shutil.rmtree(place)  # kept after an error
    found["all"] = [one for done in found.values() for one in done]
    for name, done in found.items():
        sums = [sum(getattr(one, key) for one in done) for key in Found.__annotations__]
        print(f"| {name} | " + " | ".join(f"{n:,}" for n in sums[:4]), end="")
        print(f" | {sums[4]:,} of {sums[5]:,} |")


if __name__ == "__main__":
    main(tyro.cli(Args))
