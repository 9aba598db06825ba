"""Seeds of a run shared out among processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..base.tied_program import tied
from ..base.words import ranges
from ..errors import ConfigError
from ..run.programs import run_programs
from ..run.seeds import words_of_seeds
from ..store.run_dir import RunDir
from .config import AlgorithmConfig

_PROGRAM = "hooktrainer.algorithms.seed_program"


def train_in_processes(algorithm: AlgorithmConfig, place: Path) -> None:
    """Train the seeds of a run in as many processes as it has ``workers``.

    They are on this machine, or with ``engine="ray"`` on those of a Ray cluster, all of which have
    to see the directory.

    Args:
        algorithm: The run, given by what a command line can say.
        place: Where the directories of the seeds are.

    Raises:
        ConfigError: If it has fields that a command line cannot say.
        RuntimeError: If a process has failed; it has said why.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    given = [name for name in ("loggers", "hooks", "collector") if getattr(algorithm, name)]
    if not isinstance(algorithm.env, str):
        given.append("env")
    if algorithm.network is not None and not isinstance(algorithm.network, str):
        given.append("network")
    if given:
        raise ConfigError(
            f"{algorithm.name()}: workers={algorithm.workers} train the seeds in other processes, "
            f"to which {given[0]}={getattr(algorithm, given[0])!r} cannot be sent: pass workers=0, "
            "or what a command line can say."
        )
    if algorithm.engine == "ray" and algorithm.collectors:
        raise ConfigError(
            f"{algorithm.name()}: collectors={algorithm.collectors} with seeds and workers: Ray's "
            "processes train seeds, each of which collects by itself. Leave it out."
        )
    shares = [algorithm.seeds[i :: algorithm.workers] for i in range(algorithm.workers)]
    values = algorithm.as_dict() | {"workers": 0, "engine": "local", "progress_bar": False}
    kind = type(algorithm)
    if kind.__module__ == "__main__":
        raise ConfigError(
            f"{algorithm.name()}: workers={algorithm.workers} train the seeds in other processes, "
            "which cannot import a class of a script: pass workers=0, or put it into a module."
        )
    program = ["-m", _PROGRAM, kind.__module__, kind.__qualname__, json.dumps(values)]
    words = ["--run-dir", str(place.absolute()), "--seeds"]
    commands = [[*program, *words, words_of_seeds(share)] for share in filter(None, shares)]
    run = _run_on_ray if algorithm.engine == "ray" else _run_here
    failed = [code for code in run(commands, algorithm.grace) if code]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of the {len(commands)} processes that train the seeds in {place} have "
            "failed, as they have said above; resume='latest' goes on with what there is."
        )
    if lost := [seed for seed in algorithm.seeds if not RunDir(place / f"seed{seed}").holds_run]:
        raise RuntimeError(
            f"seeds {ranges(lost)} have left nothing in {place}: all machines of the Ray cluster "
            "have to see that directory."
        )


def _run_here(commands: Sequence[Sequence[str]], grace: float) -> list[int]:
    starts = [partial(tied, words, stdout=subprocess.DEVNULL) for words in commands]
    return run_programs(starts, grace=grace)


def _run_on_ray(commands: Sequence[Sequence[str]], grace: float) -> list[int]:
    from ..run.ray import Cluster, RayProgram

    cluster = Cluster(len(commands))
    cluster.retain()
    try:
        starts = [partial(RayProgram, cluster, words) for words in commands]
        return run_programs(starts, grace=grace)
    finally:
        cluster.release()
