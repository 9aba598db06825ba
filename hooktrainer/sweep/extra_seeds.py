"""Training settings of a sweep from further seeds when its trials are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..algorithms import Algorithm
from ..algorithms.seed_runs import run_of, train_runs
from ..base.endings import ENDED
from ..errors import CheckpointError, TakenError
from ..store.lock import RunLock
from ..store.run_dir import RunDir
from .ledger import refuse_links


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """In the block, no other process is in one for the same place.

    Raises:
        TakenError: If one is.
    """
    place.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(place)
    except CheckpointError:
        raise TakenError("another process is choosing and confirming the winner") from None
    try:
        yield
    finally:
        lock.release()


def train_from(
    seeds: Sequence[int], settings: Sequence[tuple[Algorithm, Path]]
) -> dict[Path, Exception]:
    """Train each of some settings from some seeds.

    What has come to its end already is left as it is; what was killed goes on.

    Args:
        seeds: The seeds.
        settings: Runs, each with the directory that its seeds' directories are in.

    Returns:
        By directory of those that have failed, the first of what their runs have raised.
    """
    failures: dict[Path, Exception] = {}
    runs, places = [], []
    for algorithm, place in settings:
        for seed in seeds:
            refuse_links(place.parent, place, place / f"seed{seed}")
            ended = RunDir(place / f"seed{seed}").read().get("status") in ENDED
            if not ended:
                runs.append(run_of(replace(algorithm, resume="latest"), seed, place))
                places.append(place)
    for place, result in zip(places, train_runs(runs, keep=True, progress_bar=False), strict=True):
        if result.error is not None:
            failures.setdefault(place, result.error)
    return failures
