"""Several seeds of one run, side by side in one process."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table

from ..base.frames_bar import frames_bar, show_frames
from ..base.words import plural, printable
from ..errors import ConfigError, add_note
from ..loop.lockstep import Lockstep
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .config import AlgorithmConfig
from .seed_share import train_in_processes

Kind = TypeVar("Kind", bound=AlgorithmConfig)


class SeedRuns:
    """The runs of an algorithm with each of its ``seeds``, which train side by side.

    Each is a run by itself, with its own directory ``<run_dir>/seed<i>``, and is bit for bit the
    same whichever others run beside it; see `hooktrainer.loop.lockstep.Lockstep`.

    Args:
        algorithm: The run, with ``seeds``.
        make: Makes the trainer of one run.
        keep: Whether the runs have directories.

    Attributes:
        seeds: The seeds.
        trainers: Their trainers, as far as these are made.

    Raises:
        ConfigError: If they are to be kept and resumed, and have no ``run_dir``; or would share
            what belongs to one run.
    """

    def __init__(
        self, algorithm: AlgorithmConfig, make: Callable[[Any], Trainer], keep: bool
    ) -> None:
        self.seeds: Sequence[int] = algorithm.seeds
        self.trainers: list[Trainer] = []
        self._make = make
        self._algorithm = algorithm
        self._keep = keep
        self._place = algorithm.run_dir
        if algorithm.loggers:
            raise ConfigError(
                f"loggers={algorithm.loggers!r} with seeds={self.seeds}: runs of their own need "
                "each a logger of its own: name them with logger=, or train the seeds one by one."
            )
        if keep and self._place is None:
            for name in ("resume", "fork"):
                if value := getattr(algorithm, name):
                    raise ConfigError(f"{name}={value!r} with seeds={self.seeds}: name a run_dir.")
            stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
            self._place = Path("runs") / algorithm.name() / f"{stamp}_seeds"

    def train(self) -> list[Trainer]:
        """Train all of them, and say how they ended.

        Returns:
            Their trainers, in the order of the seeds; none if other processes have trained them.

        Raises:
            ConfigError: If other processes are to train them, and nothing is kept of that.
            Exception: What a run has raised; the others have gone on to their ends.
        """
        started, cpu = time.monotonic(), time.process_time()
        if self._algorithm.workers and len(self.seeds) > 1:
            self._in_processes(started)
            return []
        trainers = self.trainers
        group = Lockstep(self._made(trainers))
        with self._bar(trainers) as bar:
            errors = group.run(lambda: show_frames(bar, _frames(trainers)))
        rows = [_row(*each) for each in zip(self.seeds, trainers, errors, strict=True)]
        spent = time.monotonic() - started, time.process_time() - cpu
        self._report(rows, f"{spent[0]:.1f} s, {spent[1]:.1f} CPU s")
        for seed, error in zip(self.seeds, errors, strict=True):
            if error is not None:
                add_note(error, f"in the run of seed {seed}; what became of the others is above")
                raise error
        return trainers

    def _in_processes(self, started: float) -> None:
        if not self._keep:
            raise ConfigError(
                f"workers={self._algorithm.workers} train the seeds in other processes, which "
                "leave what they have done in a directory: name a run_dir."
            )
        assert self._place is not None
        train_in_processes(self._algorithm, Path(self._place))
        states = [RunDir(Path(self._place) / f"seed{seed}").read() for seed in self.seeds]
        rows = [
            _Row(
                seed,
                state.get("frames", 0),
                state.get("metrics", {}).get("eval/return"),
                state.get("reason") or state.get("status", "unknown"),
            )
            for seed, state in zip(self.seeds, states, strict=True)
        ]
        self._report(rows, f"{time.monotonic() - started:.1f} s")

    def _made(self, trainers: list[Trainer]) -> Iterator[Trainer]:
        for seed in self.seeds:
            trainers.append(self._make(self._run(seed)))
            yield trainers[-1]

    def _run(self, seed: int) -> AlgorithmConfig:
        """The run of one of the seeds."""
        place = Path(self._place) if self._keep and self._place is not None else None
        return run_of(self._algorithm, seed, place)

    def _bar(self, trainers: Sequence[Trainer]) -> Any:
        given = self._algorithm
        return frames_bar(
            total=given.total_frames * len(self.seeds),
            initial=_frames(trainers),
            disable=not given.progress_bar,
        )

    def _report(self, rows: Sequence[_Row], spent: str) -> None:
        table = Table(box=None, pad_edge=False)
        for name in ("seed", "frames", "eval/return", "how it ended"):
            table.add_column(name, justify="left" if name == "how it ended" else "right")
        for row in rows:
            mean = "" if row.mean is None else f"{row.mean:.1f}"
            table.add_row(str(row.seed), f"{row.frames:,}", mean, printable(row.how))
        console = Console(highlight=False, soft_wrap=True)
        console.print(table)
        where = f" in {printable(self._place)}" if self._keep else ""
        console.print(
            f"{plural(len(rows), 'seed', 'seeds')}{where}: {spent}",
            markup=False,
        )


def run_of(algorithm: Kind, seed: int, place: Path | None) -> Kind:
    """The run of one of several seeds.

    Args:
        algorithm: What is run with each of them.
        seed: The seed.
        place: The directory of all, in which the run has ``seed<i>``; ``None`` to keep nothing.

    Returns:
        The run, which shares neither hooks nor networks with the others. It is resumed if
        ``algorithm`` is, and begins anew where its process ended before it began.
    """
    resume, run_dir = algorithm.resume, None
    if place is not None:
        run_dir = place / f"seed{seed}"
        if resume == "latest" and not RunDir(run_dir).holds_run:
            resume = None
    own = {name: copy.deepcopy(getattr(algorithm, name)) for name in ("hooks", "network")}
    return replace(
        algorithm,
        seeds=(seed,),
        seed=seed,
        run_dir=run_dir,
        resume=resume,
        progress_bar=False,
        **own,
    )


class _Row(NamedTuple):
    """How the run of a seed ended."""

    seed: int
    frames: int
    mean: float | None
    how: str


def _row(seed: int, trainer: Trainer, error: Exception | None) -> _Row:
    control = trainer.control
    how = control.status if control.stop_reason is None else control.stop_reason
    latest = trainer.metrics.latest("eval/return")
    return _Row(
        seed, trainer.collected_frames, latest, how if error is None else f"failed: {error}"
    )


def _frames(trainers: Sequence[Trainer]) -> int:
    return sum(trainer.collected_frames for trainer in trainers)
