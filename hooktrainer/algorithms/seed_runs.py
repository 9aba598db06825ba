"""Runs of several seeds, each in a process forked from a warm parent."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from rich.console import Console
from rich.table import Table

from ..base.cores import available_cores
from ..base.endings import ENDED
from ..base.frames_bar import forget_bars, frames_bar, show_frames, without_monitor
from ..base.words import plural, printable
from ..base.worker import Channel, ChildError, Start, Worker, native_threads
from ..errors import USER_ERRORS, ConfigError
from ..graphs.compiling import keep_for_forks
from ..log.sink import DEFAULT_LOGGERS, import_sinks
from ..loop import Control, GracefulSignals, SignalExit
from ..store import rng_state, set_rng_state
from ..store.run_dir import RunDir
from ..trainer import Trainer
from .config import AlgorithmConfig

Kind = TypeVar("Kind", bound=AlgorithmConfig)

_LOOK: Final = 0.2  # seconds
_SLACK: Final = 5.0  # seconds that this process has after its children


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed's run.

    Attributes:
        seed: The seed.
        status: One of `hooktrainer.base.endings.ENDINGS`.
        reason: Why it stopped or failed; ``None`` if it collected all its frames.
        frames: Number of collected frames, with those before a resume.
        metrics: The last reported values.
        run_dir: Its directory; ``None`` if nothing was kept.
        error: The exception that ended a failed run.
        cpu_seconds: CPU time of its process.
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
    place, started = _place(algorithm, keep), time.monotonic()
    on_ray = algorithm.engine == "ray" and algorithm.workers > 0 and len(seeds) > 1
    engine = "local" if on_ray else algorithm.engine
    runs = [replace(run_of(algorithm, seed, place), engine=engine) for seed in seeds]
    results = train_runs(
        runs,
        keep=keep,
        at_once=algorithm.workers,
        progress_bar=algorithm.progress_bar,
        on_ray=on_ray,
    )
    if all(isinstance(one.error, USER_ERRORS) and not one.frames for one in results):
        raise results[0].error  # type: ignore[misc]
    where = "" if place is None else f" in {printable(place)}"
    cpu = sum(one.cpu_seconds for one in results)
    spent = f"{time.monotonic() - started:.1f} s, {cpu:.1f} CPU s"
    _print_table(results, f"{plural(len(seeds), 'seed', 'seeds')}{where}: {spent}")
    return results


def run_of(algorithm: Kind, seed: int, place: Path | None) -> Kind:
    """The run of one of several seeds, in ``<place>/seed<i>``; ``None`` to keep nothing.

    It shares neither hooks nor networks with the others. It is resumed if ``algorithm`` is. If its
    process ended before it began, it starts from the beginning, or where the others branched off.
    """
    resume, fork, run_dir, mirror = algorithm.resume, algorithm.fork, None, None
    if place is not None:
        run_dir = place / f"seed{seed}"
        if algorithm.mirror is not None:
            mirror = f"{algorithm.mirror.rstrip('/')}/seed{seed}"
        if resume == "latest" and not RunDir(run_dir).holds_run and algorithm.mirror is None:
            parents = (RunDir(other).forked_from for other in sorted(place.glob("seed*")))
            resume, fork = None, next((str(one["path"]) for one in parents if one), fork)
    names = [name for name in ("hooks", "network") if hasattr(algorithm, name)]
    own = {name: copy.deepcopy(getattr(algorithm, name)) for name in names}
    return replace(
        algorithm,
        seeds=(seed,),
        seed=seed,
        workers=0,
        run_dir=run_dir,
        resume=resume,
        fork=fork,
        mirror=mirror,
        progress_bar=False,
        **own,
    )


Ask = Callable[[Any], Any]
_LOOKS = 10
_BATCHES = 2  # with optimizer steps, after which nothing is left to compile
Prepare = Callable[[Any, Ask], Trainer]
Begin = Callable[[AlgorithmConfig], "Worker | _RaySeed"]
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
    on_ray: bool = False,
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
        on_ray: Whether they train in a Ray cluster; then none reports.

    Raises:
        ConfigError: If a run cannot be sent to its process.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    if not runs:
        return []
    if any(run.shards for run in runs):
        raise ConfigError(
            f"shards={runs[0].shards} with several seeds or trials: every shard runs the program "
            "again. Train them one by one."
        )
    total = sum(run.total_frames for run in runs)
    bar = frames_bar(desc=desc, total=total, leave=desc is None, disable=not progress_bar)
    at_once = min(at_once or len(available_cores()), len(runs))
    with ExitStack() as stack:
        if on_ray:
            from ..run import Cluster

            cluster = Cluster(at_once)
            stack.callback(cluster.close)
            begin: Begin = _RaySeed
        else:
            start = stack.enter_context(_warmed(runs[0]))

            def begin(run: AlgorithmConfig) -> Worker:
                return Worker(f"seed {run.seed}", _train, run, keep, prepare, start=start)

        stack.enter_context(bar)
        # Else the first collection in a forked process copies the memory that it shares.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        return _Children(runs, begin, meet).train(at_once, partial(show_frames, bar))


class _Children:
    """The processes of several runs; ``results`` maps the index of a finished run to its result."""

    def __init__(
        self,
        runs: Sequence[AlgorithmConfig],
        begin: Begin,
        meet: Meet,
    ) -> None:
        self.results: dict[int, SeedResult] = {}
        self._runs, self._begin, self._meet = runs, begin, meet
        self._pending = deque(range(len(runs)))
        self._workers: dict[int, Any] = {}
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
                        self._schedule(at_once)
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

    def _schedule(self, at_once: int) -> None:
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
                self._workers[place] = self._begin(self._runs[place])

    def _stop(self) -> None:
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
                self._frames[place] = value.frames

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
    # Errors are raised again, and reported, by the processes.
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
    run_dir = None if run.run_dir is None else Path(run.run_dir)
    # A finished run that was resumed has its metrics only in the directory.
    known = {} if run_dir is None else RunDir(run_dir).read().get("metrics", {})
    return SeedResult(
        run.seed,
        "failed" if failed else trainer.control.status,
        trainer.control.stop_reason,
        trainer.collected_frames,
        {**trainer.metrics.reported, **{name: float(value) for name, value in known.items()}},
        run_dir,
        cpu_seconds=time.process_time(),
    )


def _place(algorithm: AlgorithmConfig, keep: bool) -> Path | None:
    """The directory of all runs; `None` if they have none."""
    if algorithm.loggers:
        raise ConfigError(
            f"loggers={algorithm.loggers!r} with seeds: each run needs a logger of its own: name "
            "them with logger=, or train the seeds one by one."
        )
    if not keep:
        return None
    if algorithm.run_dir is not None:
        return Path(algorithm.run_dir)
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


# -- Seeds on the machines of a Ray cluster.


class _RaySeed:
    """Stands for the `Worker` of a run that trains on some machine of a Ray cluster."""

    pid = None

    def __init__(self, run: AlgorithmConfig) -> None:
        import ray

        self.connection, end = Pipe(duplex=False)
        command = os.getcwd(), sys.argv, sys.orig_argv, sys.modules["__main__"].__spec__
        remote: Any = _RemoteRun
        actor = ray.remote(remote).options(num_cpus=1, max_concurrency=2)
        self._actor: Any = actor.remote(command)
        self._result = self._actor.train.remote(run).future()
        self._result.add_done_callback(lambda _: end.close())  # which wakes the waiting process
        self._received = False

    def receive_object(self) -> Any:
        """Receive the result; raise what the run ended with."""
        if self._received:
            raise ChildError("it has ended")
        try:
            result = self._result.result()
        except Exception as error:
            raise getattr(error, "cause", error) from None
        self._received = True
        return "ended", result

    def terminate(self) -> None:
        """Have the run save and end."""
        self._actor.stop.remote()

    def close(self, grace: float) -> None:
        """End the process."""
        import ray

        ray.kill(self._actor)


class _RemoteRun:
    """The run of a seed, in a process of the cluster; the command is what ``run.json`` has."""

    def __init__(self, command: tuple[str, list[str], list[str], Any]) -> None:
        directory, sys.argv, sys.orig_argv, sys.modules["__main__"].__spec__ = command
        os.chdir(directory)
        self._trainer: Trainer | None = None

    def train(self, run: AlgorithmConfig) -> SeedResult:
        self._trainer = trainer = run.built(run.run_dir is not None)  # type: ignore[attr-defined]
        with suppress(SignalExit):
            trainer.train()
        return _result(run, trainer, failed=False)

    def stop(self) -> None:
        while self._trainer is None:  # it is still being built
            time.sleep(_LOOK)
        self._trainer.control.receive(signal.SIGTERM, self._trainer.grace)
