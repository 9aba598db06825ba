"""Seeds of a run divided among the processes of a Ray cluster."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from ..base.words import ranges
from ..errors import ConfigError
from ..run.programs import run_programs
from ..run.seeds import words_of_seeds
from ..store.run_dir import RunDir
from .config import AlgorithmConfig


def train_on_ray(algorithm: AlgorithmConfig, place: Path) -> None:
    """Train the seeds of a run in as many processes of a Ray cluster as it has ``workers``.

    All machines have to see ``place``, where the directories of the seeds are.

    Raises:
        ConfigError: If it has fields that a command line cannot say.
        RuntimeError: If a process has failed; its message is printed above.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    name, kind = algorithm.name(), type(algorithm)
    plain = [one for one in ("env", "network") if not isinstance(getattr(algorithm, one), str)]
    for field in ("loggers", "hooks", "collector", *plain):
        if value := getattr(algorithm, field):
            raise ConfigError(
                f"{name}: engine='ray': {field}={value!r} cannot be sent to other machines: leave "
                "it out, or engine."
            )
    if algorithm.collectors:
        raise ConfigError(
            f"{name}: collectors={algorithm.collectors} with seeds and workers: each seed collects "
            "by itself. Leave it out."
        )
    if kind.__module__ == "__main__":
        raise ConfigError(
            f"{name}: engine='ray': other machines cannot import a class of a script: put it into "
            "a module."
        )
    shares = [algorithm.seeds[i :: algorithm.workers] for i in range(algorithm.workers)]
    # One at a time: Ray gives each process one core.
    values = algorithm.as_dict() | {"workers": 1, "engine": "local", "progress_bar": False}
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
