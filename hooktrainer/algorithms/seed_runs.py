"""Runs of several seeds, each in a process of its own that starts from a warm parent."""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from ..base.cores import available_cores
from ..base.endings import ENDED
from ..base.frames_bar import forget_bars, frames_bar, show_frames, without_monitor
from ..base.words import plural, printable, ranges
from ..base.worker import Channel, ChildError, Start, Worker, frozen_heap, native_threads
from ..errors import USER_ERRORS, ConfigError
from ..graphs.compiling import keep_for_forks
from ..log.factory import DEFAULT_LOGGERS, import_sinks
from ..loop.control import Control
from ..loop.signals import GracefulSignals, SignalExit
from ..run.config import from_plain
from ..run.programs import run_programs
from ..run.seeds import words_of_seeds
from ..store.rng import rng_state, set_rng_state
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .config import AlgorithmConfig

Kind = TypeVar("Kind", bound=AlgorithmConfig)

_LOOK: Final = 0.2  # seconds
_SLACK: Final = 5.0  # seconds that this process has after its children


@dataclass(frozen=True)
class SeedResult:
    """How the run of one seed ended.

    Attributes:
        seed: The seed.
        status: One of `hooktrainer.base.endings.ENDINGS`.
        reason: Why it stopped or failed; ``None`` where it reached its last frame.
        frames: Collected, those before a resume included.
        metrics: The last values that it reported.
        run_dir: Its directory; ``None`` if nothing was kept.
        error: What ended a run that failed.
        cpu_seconds: That its process took.
    """

    seed: int
    status: str
    reason: str | None = None
    frames: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    run_dir: Path | None = None
    error: Exception | None = None
    cpu_seconds: float = 0.0


def train_seeds(algorithm: AlgorithmConfig, keep: bool) -> list[SeedResult]:
    """Train each of the ``seeds`` of an algorithm, ``workers`` at a time, and print their results.

    If they are kept, their directories are ``<run_dir>/seed<i>``.
    """
    seeds: Sequence[int] = algorithm.seeds
    place = _place(algorithm, keep)
    started, cpu = time.monotonic(), _cpu_seconds()
    if algorithm.engine == "ray" and algorithm.workers and len(seeds) > 1:
        if place is None:
            raise ConfigError(f"engine='ray' with workers={algorithm.workers}: name a run_dir.")
        train_on_ray(algorithm, place)
        results = [_recorded(seed, place / f"seed{seed}") for seed in seeds]
        spent = f"{time.monotonic() - started:.1f} s"
    else:
        runs = [run_of(algorithm, seed, place) for seed in seeds]
        results = train_runs(
            runs, keep=keep, at_once=algorithm.workers, progress_bar=algorithm.progress_bar
        )
        if all(isinstance(one.error, USER_ERRORS) and not one.frames for one in results):
            raise results[0].error  # type: ignore[misc]
        spent = f"{time.monotonic() - started:.1f} s, {_cpu_seconds() - cpu:.1f} CPU s"
    where = "" if place is None else f" in {printable(place)}"
    _print_table(results, f"{plural(len(seeds), 'seed', 'seeds')}{where}: {spent}")
    return results


def run_of(algorithm: Kind, seed: int, place: Path | None) -> Kind:
    """The run of one of several seeds, in ``<place>/seed<i>``; ``None`` to keep nothing.

    It shares neither hooks nor networks with the others. It is resumed if ``algorithm`` is, and
    starts from the beginning if its process ended before it began.
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
        workers=0,
        run_dir=run_dir,
        resume=resume,
        progress_bar=False,
        **own,
    )


Ask = Callable[[Any], Any]
_LOOKS = 10
_BATCHES = 2  # with optimizer steps, after which nothing is left to compile
Prepare = Callable[[Any, Ask], Trainer]
Meet = Callable[[Mapping[int, Any], Mapping[int, "SeedResult"]], Mapping[int, Any]]


def train_runs(
    runs: Sequence[AlgorithmConfig],
    *,
    keep: bool,
    at_once: int = 0,
    progress_bar: bool = True,
    desc: str | None = None,
    prepare: Prepare | None = None,
    meet: Meet = lambda reports, results: {},
) -> list[SeedResult]:
    """Train runs, each in a process forked from this one, or spawned where forking is not safe.

    Args:
        runs: The runs, of which the results have the order.
        keep: Whether they have directories.
        at_once: How many train at the same time; 0 for as many as there are cores.
        progress_bar: Whether to show a bar over the frames of all.
        desc: Its label.
        prepare: Makes the trainer, in the process of the run; called with the run and a function
            that sends a report to this process and waits for the answer. Without it none reports.
        meet: Called as soon as all runs that have not ended wait for an answer, with their reports
            and the results of the others, by the places of the runs; returns the answers by place.

    Raises:
        ConfigError: If a run cannot be sent to its process.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    if not runs:
        return []
    with _warmed(runs[0]) as start:
        total = sum(run.total_frames for run in runs)
        bar = frames_bar(desc=desc, total=total, leave=desc is None, disable=not progress_bar)
        with bar, frozen_heap():
            children = _Children(runs, (keep, prepare), meet, start)
            return children.train(at_once or len(available_cores()), partial(show_frames, bar))


class _Children:
    """The processes of several runs; ``results`` maps the index of a finished run to its result."""

    def __init__(
        self,
        runs: Sequence[AlgorithmConfig],
        how: tuple[bool, Prepare | None],
        meet: Meet,
        start: Start,
    ) -> None:
        self.results: dict[int, SeedResult] = {}
        self._runs, self._how, self._meet, self._start = runs, how, meet, start
        self._pending = deque(range(len(runs)))
        self._workers: dict[int, Worker] = {}
        self._reports: dict[int, Any] = {}  # of runs that wait for an answer
        self._answers: deque[tuple[int, Any]] = deque()  # that are due when there is a core
        self._frames: dict[int, int] = {}

    def train(self, at_once: int, watch: Callable[[int], object]) -> list[SeedResult]:
        """Train all."""
        control = Control()
        stopping = False
        try:
            with GracefulSignals(control, max(run.grace for run in self._runs) + _SLACK):
                while self._pending or self._workers:
                    if control.signal is None:
                        self._go_on(at_once)
                    elif not stopping:
                        stopping = True
                        self._stop()
                    self._take_messages()
                    watch(sum(self._frames.values()))
                control.is_leaving = True
        finally:
            for worker in self._workers.values():
                worker.close(0.0)
        if control.signal is not None:
            raise SignalExit(control.signal, deadline=control.deadline)
        return [self.results[place] for place in range(len(self._runs))]

    def _go_on(self, at_once: int) -> None:
        """Start and answer as many as there are cores for."""
        if self._reports and not self._pending and len(self._reports) == len(self._workers):
            answers = self._meet(self._reports, self.results)
            self._answers.extend((place, answers.get(place)) for place in self._reports)
            self._reports.clear()
        waiting = len(self._reports) + len(self._answers)
        for _ in range(at_once - len(self._workers) + waiting):
            if self._answers:
                place, answer = self._answers.popleft()
                self._workers[place].send_object(answer)
            elif self._pending:
                place = self._pending.popleft()
                run = self._runs[place]
                name = f"seed {run.seed}"
                self._workers[place] = Worker(name, _train, run, *self._how, start=self._start)

    def _stop(self) -> None:
        """Have all save and end; none waits for an answer any more."""
        self._pending.clear()
        for worker in self._workers.values():
            worker.terminate()
        for place in (*self._reports, *(place for place, _ in self._answers)):
            self._workers[place].send_object(None)
        self._reports.clear()
        self._answers.clear()

    def _take_messages(self) -> None:
        places = {worker.connection: place for place, worker in self._workers.items()}
        for connection in wait(list(places), _LOOK):
            place = places[connection]
            worker = self._workers[place]
            try:
                kind, value = worker.receive_object()
            except Exception as error:
                self._end(place, error)
                continue
            if kind == "frames":
                self._frames[place] = value
            elif kind == "report":
                self._reports[place] = value
            else:
                self.results[place] = value

    def _end(self, place: int, error: Exception) -> None:
        """Store the result of a run whose process has raised something or is gone."""
        worker, run = self._workers.pop(place), self._runs[place]
        worker.close(_SLACK)
        self._reports.pop(place, None)
        run_dir = None if run.run_dir is None else Path(run.run_dir)
        result = self.results.get(place)
        if result is None:
            reason = str(error) if type(error) is ChildError else f"{type(error).__name__}: {error}"
            frames = self._frames.get(place, 0)
            result = SeedResult(run.seed, "failed", reason, frames, run_dir=run_dir)
        if result.status not in ENDED:
            result = replace(result, error=error)
        if result.status == "failed" and run_dir is not None:
            with suppress(Exception):  # the process may not have been able to write that itself
                known = RunDir(run_dir).read()
                if known.get("pid") == worker.pid and known.get("status") != "failed":
                    RunDir(run_dir).update(status="failed", reason=result.reason)
        self.results[place] = result


@contextmanager
def _warmed(run: AlgorithmConfig) -> Iterator[Start]:
    """Do the start-up work that forked processes inherit, once."""
    # A forked process cannot use CUDA if its parent does, nor libraries with threads, such as JAX.
    if sys.platform != "linux" or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield "spawn"
        return
    threads, rng = native_threads(), rng_state()
    import_sinks(run.logger or DEFAULT_LOGGERS)
    # What cannot be made, is reported by the processes.
    with suppress(Exception, SystemExit), without_monitor():
        one = run_of(run, run.seed, None)
        one = replace(one, resume=None, fork=None, hooks=(), loggers=(), progress_bar=False)
        trainer: Trainer = one.built(keep=False)  # type: ignore[attr-defined]
        if one.compile:
            _compile(trainer)
        trainer.shutdown()
    set_rng_state(rng)
    on_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    for _ in range(_LOOKS):  # threads of what was shut down may still be ending
        if native_threads() <= threads:
            break
        time.sleep(_LOOK)
    yield "spawn" if on_cuda or native_threads() > threads else "fork"


def _compile(trainer: Trainer) -> None:
    """Train the batches in which everything is compiled, so that forked processes inherit it."""
    batches = 0

    def stop() -> None:
        nonlocal batches
        batches += trainer.optim_count > 0
        if batches == _BATCHES:
            trainer.request_stop("all is compiled")

    trainer.register_op("post_steps", stop)
    with keep_for_forks():
        trainer.train()


def _train(channel: Channel, run: AlgorithmConfig, keep: bool, prepare: Prepare | None) -> None:
    """What the process of a run does."""
    forget_bars()

    def ask(message: Any) -> Any:
        channel.send_object(("report", message))
        return pickle.loads(channel.receive())

    trainer: Trainer = prepare(run, ask) if prepare else run.built(keep)  # type: ignore[attr-defined]
    channel.pulse = lambda: ("frames", trainer.collected_frames)
    failed = False
    try:
        trainer.train()
    except SignalExit:
        pass
    except BaseException:
        failed = True
        raise
    finally:
        channel.pulse = None
        channel.send_object(("ended", _result(run, trainer, failed)))


def _result(run: AlgorithmConfig, trainer: Trainer, failed: bool) -> SeedResult:
    kept = None if run.run_dir is None else _recorded(run.seed, Path(run.run_dir))
    return SeedResult(
        run.seed,
        "failed" if failed else trainer.control.status,
        trainer.control.stop_reason,
        trainer.collected_frames,
        {**trainer.metrics.reported, **(kept.metrics if kept else {})},
        kept.run_dir if kept else None,
        cpu_seconds=time.process_time(),
    )


def _recorded(seed: int, path: Path) -> SeedResult:
    """How a run ended, by its directory."""
    state = RunDir(path).read()
    return SeedResult(
        seed,
        state.get("status", "failed"),
        state.get("reason"),
        state.get("frames", 0),
        {name: float(value) for name, value in state.get("metrics", {}).items()},
        path,
    )


def _place(algorithm: AlgorithmConfig, keep: bool) -> Path | None:
    """The directory of all runs; `None` if they have none."""
    if algorithm.loggers:
        raise ConfigError(
            f"loggers={algorithm.loggers!r} with seeds: each run needs a logger of its own: name "
            "them with logger=, or train the seeds one by one."
        )
    if not keep or algorithm.run_dir is not None:
        return Path(algorithm.run_dir) if keep and algorithm.run_dir else None
    for name in ("resume", "fork"):
        if value := getattr(algorithm, name):
            raise ConfigError(f"{name}={value!r} with seeds={algorithm.seeds}: name a run_dir.")
    return Path("runs", algorithm.name(), f"{datetime.now():%Y-%m-%d_%H-%M-%S}_seeds")


def _print_table(results: Sequence[SeedResult], last: str) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("seed", "frames", "eval/return", "how it ended"):
        table.add_column(name, justify="left" if name == "how it ended" else "right")
    for one in results:
        mean = f"{one.metrics['eval/return']:.1f}" if "eval/return" in one.metrics else ""
        how = one.status if one.reason is None else one.reason
        if one.status not in ENDED and how != one.status:
            how = f"{one.status}: {how}"
        table.add_row(str(one.seed), f"{one.frames:,}", mean, printable(how))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(last, markup=False)


def _cpu_seconds() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


# -- Seeds of a run divided among the processes of a Ray cluster.


def train_on_ray(algorithm: AlgorithmConfig, place: Path) -> None:
    """Train the seeds of a run in as many processes of a Ray cluster as it has ``workers``.

    All machines have to see ``place``, where the directories of the seeds are.

    Raises:
        ConfigError: If it has fields that a command line cannot say.
        RuntimeError: If a process has failed; its message is printed above.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    name, kind = algorithm.name(), type(algorithm)
    values = algorithm.as_dict() | {"workers": 1, "engine": "local", "progress_bar": False}
    # One at a time: Ray gives each process one core.
    alone = replace(algorithm, workers=1, engine="local", progress_bar=False)
    if kind.__module__ == "__main__" or kind(**from_plain(kind, values, name)) != alone:
        raise ConfigError(
            f"{name}: engine='ray': other machines are sent the options that a command line can "
            "have. Leave out the others, and put a class of a script into a module."
        )
    if algorithm.collectors:
        raise ConfigError(
            f"{name}: collectors={algorithm.collectors} with seeds and workers: each seed collects "
            "by itself. Leave it out."
        )
    shares = [algorithm.seeds[i :: algorithm.workers] for i in range(algorithm.workers)]
    program = ["-m", "hooktrainer.algorithms.seed_program", kind.__module__, kind.__qualname__]
    words = ["--run-dir", str(place.absolute()), "--seeds"]
    from ..run.ray import Cluster, RayProgram

    commands = [
        [*program, json.dumps(values), *words, words_of_seeds(share)]
        for share in filter(None, shares)
    ]
    cluster = Cluster(len(commands))
    cluster.retain()
    try:
        starts = [partial(RayProgram, cluster, words) for words in commands]
        failed = [code for code in run_programs(starts, grace=algorithm.grace) if code]
    finally:
        cluster.release()
    if failed:
        raise RuntimeError(
            f"{len(failed)} of the {len(commands)} processes that train the seeds in {place} have "
            "failed; their messages are above. resume='latest' continues the runs."
        )
    if lost := [seed for seed in algorithm.seeds if not RunDir(place / f"seed{seed}").holds_run]:
        raise RuntimeError(
            f"seeds {ranges(lost)} have left nothing in {place}: all machines of the Ray cluster "
            "have to see that directory."
        )
