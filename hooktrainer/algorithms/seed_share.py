"""Seeds of a run shared out among processes."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

from ..base.tied_program import tied
from ..errors import ConfigError
from ..run.config_file import as_words
from ..run.programs import run_programs
from ..run.seeds import words_of_seeds
from .config import AlgorithmConfig

_PROGRAM = "hooktrainer.algorithms.seed_program"


def train_in_processes(algorithm: AlgorithmConfig, place: Path) -> None:
    """Train the seeds of a run in as many processes as it has ``workers``.

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
    shares = [algorithm.seeds[i :: algorithm.workers] for i in range(algorithm.workers)]
    said = {name: value for name, value in algorithm.as_dict().items() if value is not None}
    said |= {"run_dir": str(place), "workers": 0, "progress_bar": False}
    kind = type(algorithm)
    if kind.__module__ == "__main__":
        raise ConfigError(
            f"{algorithm.name()}: workers={algorithm.workers} train the seeds in other processes, "
            "which cannot import a class of a script: pass workers=0, or put it into a module."
        )
    program = ["-m", _PROGRAM, kind.__module__, kind.__qualname__]
    starts = [
        partial(
            tied,
            [*program, *as_words(said | {"seeds": words_of_seeds(share)})],
            stdout=subprocess.DEVNULL,
        )
        for share in filter(None, shares)
    ]
    failed = [code for code in run_programs(starts, grace=algorithm.grace) if code]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of the {len(starts)} processes that train the seeds in {place} have "
            "failed, as they have said above; resume='latest' goes on with what there is."
        )
