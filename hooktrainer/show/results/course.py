"""Digests of what a run computed, small enough to be shipped, and the first difference of two."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.words import listed
from ...log.csv import read_csv
from ...store.run_dir import RunDir

SCORE = "eval/return"

Series = Mapping[str, Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class Course:
    """The digest of the run of a seed.

    Attributes:
        curve: Frames and mean return of its evaluations.
        moments: Frames at which metrics were written, rising, with a digest of their values.
        metrics: Metric name to a digest of its values, without times, ``time/...``.
        parameters: A digest of the parameters in the last checkpoint.
    """

    curve: tuple[tuple[int, float], ...]
    moments: tuple[tuple[int, str], ...]
    metrics: Mapping[str, str]
    parameters: str

    @property
    def frames(self) -> int:
        """Frames of the last evaluation."""
        return self.curve[-1][0]

    @property
    def score(self) -> float:
        """The return of the last evaluation."""
        return self.curve[-1][1]

    def where_it_parts(self, other: Course) -> str | None:
        """Describe the first difference from a run with the same metrics, if there is one."""
        names = [name for name, digest in self.metrics.items() if other.metrics[name] != digest]
        if not names:
            return "the parameters differ" if self.parameters != other.parameters else None
        theirs = dict(other.moments)
        first = next((at for at, digest in self.moments if theirs.get(at) != digest), None)
        if first is None:  # the other one has further rows
            first = next(at for at, _ in other.moments if at > self.moments[-1][0])
        said = f"{listed(names, most=3)} {'differs' if len(names) == 1 else 'differ'}"
        said += f", the first at frame {first:,}"
        evaluated = dict(other.curve)
        for at, value in self.curve:
            if (found := evaluated.get(at)) != value:
                instead = "is not there" if found is None else f"is {found!r}"
                return f"{said}; {SCORE} at frame {at:,} {instead}, was {value!r}"
        return said


def read_course(run: Path, names: Collection[str] | None = None) -> Course:
    """Read the digest of a run from its directory.

    ``names`` are the metrics to read, by default all except times. A missing metric has the digest
    of nothing.
    """
    series: Series = read_csv(RunDir(run).metrics)
    if not series.get(SCORE):
        raise ValueError(f"{run} was never evaluated: there is no {SCORE} in its metrics.csv.")
    if names is None:
        names = sorted(name for name in series if not name.startswith("time/"))
    kept = {name: series.get(name, ()) for name in names}
    written: dict[int, list[str]] = {}
    for name, rows in kept.items():
        for at, value in rows:
            written.setdefault(at, []).append(f"{name},{value!r}")
    return Course(
        curve=tuple(series[SCORE]),
        moments=tuple((at, _digest("\n".join(written[at]))) for at in sorted(written)),
        metrics={
            name: _digest("\n".join(f"{at},{value!r}" for at, value in rows))
            for name, rows in kept.items()
        },
        parameters=_of_parameters(run),
    )


def course_as_plain(course: Course) -> dict[str, Any]:
    """Return a digest as JSON, without the names of the metrics."""
    return {
        "curve": course.curve,
        "moments": course.moments,
        "metrics": list(course.metrics.values()),
        "parameters": course.parameters,
    }


def course_from_plain(plain: Mapping[str, Any], names: Sequence[str]) -> Course:
    """Make a digest from `course_as_plain`, and the names of its metrics in order."""
    return Course(
        curve=tuple((int(at), float(value)) for at, value in plain["curve"]),
        moments=tuple((int(at), str(digest)) for at, digest in plain["moments"]),
        metrics=dict(zip(names, plain["metrics"], strict=True)),
        parameters=str(plain["parameters"]),
    )


def _of_parameters(run: Path) -> str:
    from ...store import find
    from ...store.stored import Checkpoint

    state = Checkpoint.open(find("latest", run)[0]).load()
    made = hashlib.blake2b(digest_size=8)
    for part in _parts(state["components"]["loss_module"]):
        made.update(part)
    return made.hexdigest()


def _parts(tree: Any, path: str = "") -> Iterator[bytes]:
    """Yield the values of a state tree, each after its path."""
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from _parts(tree[key], f"{path}/{key}")
    elif hasattr(tree, "detach"):
        yield f"{path} {tree.dtype} {list(tree.shape)}\n".encode()
        yield tree.detach().cpu().contiguous().numpy().tobytes()
    else:
        yield f"{path} {tree!r}\n".encode()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
